// sample_recording FILE [STACKS]: writes a recording of a training that never was: two GPUs, a
// loader and two ranks, a pool, steps that come and go, a leak, and refusals at the cap. Names are
// as hostile as processes and functions can choose them. With STACKS so many call stacks more. What
// it added up meanwhile it prints, a line for each GPU: the most that was taken, what was left, how
// many requests were refused.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tools/recording/writer.h"

namespace fracgpu::recording {
namespace {

constexpr uint64_t kMiB = 1 << 20, kMillisecond = 1'000'000;
const std::string kHostile = "</script><img src=x onerror=alert(1)>&amp;\"'\x01\xff";

class Sample {
 public:
  explicit Sample(const std::string& path)
      : writer_(path, {1'700'000'000'000'000'000, "python train.py --layers 24", "node-7", "0.1.0",
                       true, false}) {}

  uint32_t stack(const std::vector<std::string>& outermost_first) {
    Stack frames;
    for (auto each = outermost_first.rbegin(); each != outermost_first.rend(); ++each) {
      const std::string module = each->starts_with("py::") ? "python3" : "libtorch_cuda.so";
      if (!modules_.contains(module)) {
        modules_[module] = writer_.add_module({"/opt/lib/" + module, "ab"});
      }
      frames.push_back({modules_[module], 0, writer_.add_text(*each)});
    }
    return writer_.add_stack(frames);
  }

  void allocate(uint32_t process, uint32_t device, MemoryKind kind, uint32_t stack, uint64_t bytes,
                uint64_t address, uint64_t owner = 0) {
    Event event = base(EventType::allocated, process, device);
    event.kind = kind;
    event.stack = stack;
    event.bytes = bytes;
    event.taken = kind == MemoryKind::pool ? 0 : bytes;
    event.address = address;
    event.owner = owner;
    event.api = writer_.add_text(kind == MemoryKind::pool ? "cuMemAllocAsync" : "cuMemAlloc_v2");
    writer_.add(event);
    living_[{process, address}] = event;
    take(device, event.taken);
  }
  void release(uint32_t process, uint64_t address) {
    Event event = living_[{process, address}];
    living_.erase({process, address});
    take(event.device, -event.taken);
    event.type = EventType::released;
    event.time_ns = now_ns_;
    writer_.add(event);
  }
  void level(uint32_t process, uint32_t device, MemoryKind kind, uint64_t taken,
             uint64_t owner = 0) {
    Event event = base(EventType::level, process, device);
    event.kind = kind;
    event.taken = taken;
    event.owner = owner;
    writer_.add(event);
    take(device, taken - std::exchange(levels_[{process, device, static_cast<int>(kind)}], taken));
  }
  void refuse(uint32_t process, uint32_t device, uint64_t bytes, uint64_t held, uint64_t cap,
              uint32_t stack) {
    Event event = base(EventType::refused, process, device);
    event.bytes = event.taken = bytes;
    event.held = held;
    event.cap = cap;
    event.stack = stack;
    event.api = writer_.add_text("cuMemAlloc_v2");
    writer_.add(event);
    ++sums_[device].refused;
  }
  void end(uint32_t process) { writer_.add(base(EventType::ended, process, kNone)); }
  void mark(uint32_t process, const std::string& text) {
    Event event = base(EventType::mark, process, kNone);
    event.api = writer_.add_text(text);
    writer_.add(event);
  }
  void pass(uint64_t milliseconds) { now_ns_ += milliseconds * kMillisecond; }

  Writer& writer() { return writer_; }

  // When nothing more happens; no level ends but with its process.
  void tell() {
    for (const auto& [key, event] : living_) sums_[event.device].left += event.bytes;
    for (const auto& [device, sum] : sums_) {
      printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", sum.peak, sum.left, sum.refused);
    }
  }

 private:
  Event base(EventType type, uint32_t process, uint32_t device) const {
    Event event;
    event.type = type;
    event.process = process;
    event.device = device;
    event.time_ns = now_ns_;
    return event;
  }

  struct Sum {
    uint64_t taken = 0, peak = 0, left = 0, refused = 0;
  };
  // More, or less where it is what two's complement has for that.
  void take(uint32_t device, uint64_t bytes) {
    Sum& sum = sums_[device];
    sum.taken += bytes;
    sum.peak = std::max(sum.peak, sum.taken);
  }

  Writer writer_;
  std::map<std::string, uint32_t> modules_{};
  std::map<std::tuple<uint32_t, uint32_t, int>, uint64_t> levels_{};
  std::map<uint32_t, Sum> sums_{};
  std::map<std::pair<uint32_t, uint64_t>, Event> living_{};
  uint64_t now_ns_ = 0;
};

const std::vector<std::string> kMain = {"py::<module>:/srv/train/train.py",
                                        "py::main:/srv/train/train.py"};

std::vector<std::string> below(std::vector<std::string> outer,
                               const std::vector<std::string>& more) {
  outer.insert(outer.end(), more.begin(), more.end());
  return outer;
}

// A rank of the training: weights, an optimizer, then steps.
struct Rank {
  uint32_t process, device;
  std::vector<uint64_t> weights{}, activations{};
};

void train(Sample& sample, uint32_t stacks) {
  const uint64_t cap = 24ULL << 30;
  Writer& writer = sample.writer();
  const uint32_t loader = writer.add_process({11, 4700, "loader " + kHostile.substr(0, 9), 0});
  std::vector<Rank> ranks;
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t process = writer.add_process({20 + i, 4711 + i, "python", 0});
    const std::string key = "GPU-" + std::to_string(i);
    const std::string name = "GPU " + std::to_string(i) + " (NVIDIA H100 80GB)";
    ranks.push_back({process, writer.add_device({key, name, 80ULL << 30, cap})});
  }
  const auto layer = [&](const char* what, int number) {
    return sample.stack(
        below(kMain, {"py::train:/srv/train/train.py",
                      "py::forward:/srv/train/model_" + std::to_string(number % 6) + ".py", what,
                      "at::native::empty_cuda(c10::ArrayRef<long>)",
                      "c10::cuda::CUDACachingAllocator::Native::malloc(unsigned long)"}));
  };
  const uint32_t load_weights = sample.stack(below(
      kMain, {"py::load_weights:/srv/train/model.py", "torch::jit::Unpickler::readTensor()"}));
  const uint32_t optimizer =
      sample.stack(below(kMain, {"py::train:/srv/train/train.py", "py::step:/srv/train/adamw.py",
                                 "at::native::zeros_like"}));
  const uint32_t gradients = sample.stack(below(
      kMain, {"py::train:/srv/train/train.py", "py::backward:/srv/train/autograd.py",
              "torch::autograd::Engine::evaluate_function()", "at::native::mm_out_cuda_impl"}));
  const uint32_t leak =
      sample.stack(below(kMain, {"py::log_metrics:/srv/train/metrics.py", kHostile}));

  sample.level(loader, ranks[0].device, MemoryKind::overhead, 420 * kMiB);
  const uint32_t staging = sample.stack({"main", "stage_batches(int)", "cudaMallocHost"});
  sample.allocate(loader, ranks[0].device, MemoryKind::linear, staging, 1536 * kMiB, 7);
  for (Rank& rank : ranks) {
    sample.pass(180);
    sample.level(rank.process, rank.device, MemoryKind::overhead, 512 * kMiB);
    sample.level(rank.process, rank.device, MemoryKind::code, 96 * kMiB);
    for (uint64_t i = 0; i < 24; ++i) {
      sample.allocate(rank.process, rank.device, MemoryKind::linear, load_weights, 180 * kMiB,
                      1000 + i);
      sample.pass(25);
    }
    sample.level(rank.process, rank.device, MemoryKind::reserved, 256 * kMiB, 0xA);
  }
  std::mt19937 random(1);
  uint64_t next = 10'000;
  for (int step = 0; step < 40; ++step) {
    const double growth = step < 25 ? 1.0 : 1.0 + (step - 25) * 0.045;
    for (Rank& rank : ranks) {
      if (step == 2) {
        for (uint64_t i = 0; i < 12; ++i) {
          sample.allocate(rank.process, rank.device, MemoryKind::linear, optimizer, 300 * kMiB,
                          2000 + i);
        }
      }
      uint64_t reserved = 0;
      for (int i = 0; i < 24; ++i) {
        const char* const what =
            i % 2 == 0 ? "at::native::scaled_dot_product_attention" : "at::native::linear";
        const uint64_t bytes =
            static_cast<uint64_t>((i % 2 == 0 ? 260 : 140) * growth) * kMiB + random() % 64 * 4096;
        sample.allocate(rank.process, rank.device, MemoryKind::pool, layer(what, i), bytes, next,
                        0xA);
        rank.activations.push_back(next++);
        reserved += bytes;
        sample.level(rank.process, rank.device, MemoryKind::reserved,
                     (reserved * 5 / 4 / (32 * kMiB) + 1) * 32 * kMiB, 0xA);
        sample.pass(6);
      }
      sample.allocate(rank.process, rank.device, MemoryKind::pool, gradients, 900 * kMiB, next,
                      0xA);
      sample.pass(60);
      sample.release(rank.process, next++);
      if (step % 3 == 0) {
        sample.allocate(rank.process, rank.device, MemoryKind::linear, leak, 24 * kMiB,
                        500'000 + next);
      }
      if (step > 33 && rank.device == ranks[0].device) {
        sample.refuse(rank.process, rank.device, 4096 * kMiB, cap - 900 * kMiB, cap,
                      layer("at::native::scaled_dot_product_attention", 3));
      }
      while (!rank.activations.empty()) {
        sample.release(rank.process, rank.activations.back());
        rank.activations.pop_back();
        sample.pass(4);
      }
    }
  }
  sample.mark(loader, "recorder: " + kHostile);
  for (uint32_t i = 0; i < stacks; ++i) {
    std::vector<std::string> frames = kMain;
    for (uint32_t depth = 0; depth < 24; ++depth) {
      const uint32_t which = depth < 12 ? i % (7 * depth + 1) : i;
      frames.push_back("at::native::kernel_" + std::to_string(depth) + "_" + std::to_string(which));
    }
    sample.allocate(loader, ranks[1].device, MemoryKind::linear, sample.stack(frames), 4096 + i,
                    1'000'000 + i);
    if (i % 50 == 0) sample.pass(3);
  }
  sample.pass(400);
  sample.end(loader);
  sample.pass(100);
  for (const Rank& rank : ranks) sample.end(rank.process);
}

}  // namespace
}  // namespace fracgpu::recording

int main(int argc, char** argv) {
  using fracgpu::recording::Sample;
  if (argc < 2) return 2;
  Sample sample(argv[1]);
  fracgpu::recording::train(sample, argc > 2 ? static_cast<uint32_t>(atoi(argv[2])) : 0);
  sample.writer().finish();
  sample.tell();
  return 0;
}
