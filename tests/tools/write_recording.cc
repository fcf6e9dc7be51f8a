// write_recording FILE WHAT: writes a recording for the tests of fracgpu report. What it holds is
// said here and, in other words, in report_test.py.
#include <stdio.h>
#include <string.h>

#include <string>

#include "tests/tools/training.h"
#include "tools/recording/writer.h"

namespace {

using namespace fracgpu::recording;

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kSecond = 1'000'000'000;

// Two processes on two GPUs: weights that stay, a buffer that comes and goes, a pool, a refusal.
class Story {
 public:
  Story(const std::string& path, uint64_t scale)
      : writer_(path, {1'700'000'000ULL * kSecond, "python train.py --layers 24", "node7", "1.0",
                       true, false}),
        scale_(scale) {
    trainer_ = writer_.add_process({7, 4711, "python", 0});
    // What a hostile program may be called.
    other_ = writer_.add_process({8, 4712, "evil\n\033[31m;<script>", 0});
    gpu0_ = writer_.add_device({"GPU-aaaa", "GPU 0 (Made-up 80GB)", 80'000 * kMiB, 1'000 * kMiB});
    gpu1_ = writer_.add_device({"GPU-bbbb", "GPU 1 (Made-up 80GB)", 80'000 * kMiB, 0});
    module_ = writer_.add_module({"/nowhere/libmodel.so", "0011"});
    api_ = writer_.add_text("cuMemAlloc_v2");
  }

  void tell() {
    const uint32_t weights = stack({"make_weights", "build", "main"});
    const uint32_t step = stack({"activations", "train_step", "main"});
    const uint32_t pooled = stack({"gradients", "train_step", "main"});
    level(1, trainer_, gpu0_, MemoryKind::overhead, 0, 200);
    allocate(2, trainer_, gpu0_, MemoryKind::linear, weights, 0x1000, 300 * scale_);
    for (uint64_t i = 0; i < 10; ++i) {
      allocate(10 + static_cast<double>(i), trainer_, gpu0_, MemoryKind::linear, step, 0x2000, 100);
      release(10.5 + static_cast<double>(i));
    }
    level(30, trainer_, gpu0_, MemoryKind::reserved, 1, 128);
    allocate(30, trainer_, gpu0_, MemoryKind::pool, pooled, 0x3000, 96);
    release(35);
    refuse(40, weights, 600);
    allocate(41, other_, gpu1_, MemoryKind::linear, 0, 0x1000, 50);
    Event ended = event(50, EventType::ended, other_, kNone);
    ended.bytes = 1;
    writer_.add(ended);
    Event dropped = event(51, EventType::dropped, trainer_, kNone);
    dropped.bytes = 3;
    writer_.add(dropped);
    writer_.finish();
  }

 private:
  uint32_t stack(std::initializer_list<const char*> functions) {
    Stack stack;
    for (const char* each : functions) {
      stack.push_back({module_, stack.size() * 16, writer_.add_text(each)});
    }
    return writer_.add_stack(stack);
  }

  static Event event(double seconds, EventType type, uint32_t process, uint32_t device) {
    Event event;
    event.time_ns = static_cast<uint64_t>(seconds * 1e9);
    event.type = type;
    event.process = process;
    event.device = device;
    return event;
  }

  void allocate(double seconds, uint32_t process, uint32_t device, MemoryKind kind, uint32_t stack,
                uint64_t address, uint64_t mib) {
    last_ = event(seconds, EventType::allocated, process, device);
    last_.kind = kind;
    last_.stack = stack;
    last_.api = api_;
    last_.address = address;
    last_.bytes = mib * kMiB;
    last_.taken = kind == MemoryKind::pool ? 0 : last_.bytes;
    last_.owner = kind == MemoryKind::pool ? 1 : 0;
    writer_.add(last_);
  }

  // Of what was allocated last.
  void release(double seconds) {
    last_.type = EventType::released;
    last_.time_ns = static_cast<uint64_t>(seconds * 1e9);
    writer_.add(last_);
  }

  void level(double seconds, uint32_t process, uint32_t device, MemoryKind kind, uint64_t owner,
             uint64_t mib) {
    Event level = event(seconds, EventType::level, process, device);
    level.kind = kind;
    level.owner = owner;
    level.taken = mib * kMiB;
    writer_.add(level);
  }

  void refuse(double seconds, uint32_t stack, uint64_t mib) {
    Event refused = event(seconds, EventType::refused, trainer_, gpu0_);
    refused.stack = stack;
    refused.api = api_;
    refused.bytes = refused.taken = mib * kMiB;
    refused.held = 628 * kMiB;
    refused.cap = 1'000 * kMiB;
    writer_.add(refused);
  }

  Writer writer_;
  uint64_t scale_;
  uint32_t trainer_, other_, gpu0_, gpu1_, module_, api_;
  Event last_{};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string path = argv[1];
  if (strcmp(argv[2], "story") == 0) {
    Story(path, 1).tell();
  } else if (strcmp(argv[2], "larger") == 0) {
    Story(path, 2).tell();
  } else {
    Writer writer(path, {});
    fracgpu::tests::Training training(writer, 1, 2'000);
    training.run(std::stoull(argv[2]));
    writer.finish();
  }
  return 0;
}
