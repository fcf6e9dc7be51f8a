// Drives a fuzz target without libFuzzer: replay ROUNDS FILE…: runs each file as an input, and then
// so many variations of them, the same ones every time.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

using Input = std::vector<uint8_t>;

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: replay ROUNDS FILE...\n");
    return 2;
  }
  std::vector<Input> inputs;
  for (int i = 2; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    LLVMFuzzerTestOneInput(inputs.back().data(), inputs.back().size());
  }
  std::mt19937 random(1);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const int rounds = atoi(argv[1]);
  for (int round = 0; round < rounds; ++round) {
    Input input = inputs[below(inputs.size())];
    for (size_t edits = below(8) + 1; edits > 0; --edits) {
      const size_t at = below(input.size() + 1);
      switch (input.empty() ? 0 : below(4)) {
        case 0:
          input.insert(input.begin() + static_cast<ptrdiff_t>(at), static_cast<uint8_t>(random()));
          break;
        case 1:
          input.erase(input.begin() + static_cast<ptrdiff_t>(at % input.size()));
          break;
        case 2:
          input[at % input.size()] = static_cast<uint8_t>(random());
          break;
        default:
          input[at % input.size()] ^= static_cast<uint8_t>(1u << below(8));
      }
    }
    LLVMFuzzerTestOneInput(input.data(), input.size());
    if (input.size() < 4096 && below(16) == 0) inputs.push_back(input);
  }
  std::printf("%d files and %d variations\n", argc - 2, rounds);
  return 0;
}
