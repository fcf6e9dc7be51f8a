// Benchmarks of AMD's own HIP runtime, with its real costs, on the simulated HSA. Registers nothing
// where there is no libamdhip64.so.5. Run it with and without the library preloaded, or let run.py
// do both and compare.
#include <benchmark/benchmark.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "samples.h"

namespace bench {
namespace {

struct Hip {
  int (*init)(unsigned);
  int (*malloc)(void**, size_t);
  int (*free)(void*);
  int (*memory_info)(size_t*, size_t*);
};

template <typename Function>
void find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
}

// Ends the program when HIP finds no device.
const Hip& hip() {
  static const Hip found = [] {
    Hip functions{};
    void* const library = dlopen("libamdhip64.so.5", RTLD_NOW | RTLD_LOCAL);
    find(library, "hipInit", functions.init);
    find(library, "hipMalloc", functions.malloc);
    find(library, "hipFree", functions.free);
    find(library, "hipMemGetInfo", functions.memory_info);
    void* pointer = nullptr;
    if (functions.init(0) != 0 || functions.malloc(&pointer, 1) != 0 ||
        functions.free(pointer) != 0) {
      std::fprintf(stderr, "HIP finds no device\n");
      std::exit(3);
    }
    return functions;
  }();
  return found;
}

void malloc_free(benchmark::State& state) {
  const Hip& api = hip();
  const auto bytes = static_cast<size_t>(state.range(0));
  int failed = 0;
  Samples samples;
  for (auto _ : state) {
    samples.around([&] {
      void* pointer = nullptr;
      failed |= api.malloc(&pointer, bytes);
      failed |= api.free(pointer);
    });
  }
  samples.report(state);
  if (failed != 0) state.SkipWithError("a call failed");
}

void memory_info(benchmark::State& state) {
  const Hip& api = hip();
  Samples samples;
  size_t free = 0, total = 0;
  for (auto _ : state) samples.around([&] { api.memory_info(&free, &total); });
  samples.report(state);
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  if (dlopen("libamdhip64.so.5", RTLD_LAZY) != nullptr) {
    benchmark::RegisterBenchmark("hip_malloc_free", bench::malloc_free)
        ->Arg(4 << 10)
        ->Arg(1 << 20)
        ->Arg(16 << 20);
    benchmark::RegisterBenchmark("hip_memory_info", bench::memory_info);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
