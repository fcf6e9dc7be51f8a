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
    allocate(30, trainer_, gpu0_, MemoryKind::pool, pooled, 0x300000000, 96);
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

// Allocations behind layers that all of them have in common: wrappers of an allocator, and an
// interpreter with its foreign functions.
void write_wrapped(const std::string& path) {
  Writer writer(path, {0, "wrapped", "node7", "1.0", true, false});
  const uint32_t process = writer.add_process({7, 4711, "wrapped", 0});
  const uint32_t device = writer.add_device({"GPU-aaaa", "GPU 0", 80'000 * kMiB, 0});
  const auto module = [&](const char* file) { return writer.add_module({file, "0011"}); };
  const uint32_t model = module("/nowhere/libmodel.so"), ffi = module("/nowhere/libffi.so.8");
  const uint32_t ctypes = module("/nowhere/_ctypes.cpython-312.so");
  const uint32_t python = module("/nowhere/libpython3.12.so.1.0");
  uint64_t address = 0, time_ns = 0;
  const auto allocate = [&](uint64_t mib,
                            const std::vector<std::pair<uint32_t, const char*>>& frames) {
    Stack stack;
    for (const auto& [file, function] : frames) {
      stack.push_back({file, stack.size() * 16, writer.add_text(function)});
    }
    Event event;
    event.type = EventType::allocated;
    event.process = process;
    event.device = device;
    event.stack = writer.add_stack(stack);
    event.time_ns = ++time_ns;
    event.address = ++address;
    event.bytes = event.taken = mib * kMiB;
    writer.add(event);
  };
  const auto wrapped = [&](uint64_t mib, std::initializer_list<const char*> callers) {
    std::vector<std::pair<uint32_t, const char*>> frames;
    for (const char* each : {"ask_driver", "take_segment", "find_block", "new_storage", "tensor"}) {
      frames.emplace_back(model, each);
    }
    for (const char* each : callers) frames.emplace_back(model, each);
    allocate(mib, frames);
  };
  wrapped(300, {"weights", "train", "main"});
  wrapped(160, {"batch", "step", "train", "main"});
  wrapped(30, {"index", "train", "main"});
  for (const auto& [mib, function] :
       {std::pair(90, "py::model:/srv/train.py"), std::pair(40, "py::cache:/srv/train.py")}) {
    allocate(static_cast<uint64_t>(mib), {{ffi, "ffi_call_unix64"},
                                          {ffi, "ffi_call_int"},
                                          {ctypes, "_call_function_pointer"},
                                          {python, "_PyObject_MakeTpCall"},
                                          {python, "_PyEval_EvalFrameDefault"},
                                          {kNone, function},
                                          {python, "_PyEval_EvalFrameDefault"},
                                          {kNone, "py::<module>:/srv/train.py"},
                                          {python, "Py_RunMain"}});
  }
  writer.finish();
}

// A cap that falls below the peak after it, many marks, and the recorder's own remark behind them.
void write_lowered(const std::string& path) {
  Writer writer(path, {0, "lowered", "node7", "1.0", true, false});
  const uint32_t process = writer.add_process({9, 4713, "lowered", 0});
  Event event;
  event.type = EventType::allocated;
  event.process = process;
  event.device =
      writer.add_device({"GPU-bbbb", "GPU 1 (Made-up 80GB)", 80'000 * kMiB, 1'000 * kMiB});
  event.bytes = event.taken = 500 * kMiB;
  // Of Python that names no functions.
  event.stack = writer.add_stack(
      {{writer.add_module({"/nowhere/libffi.so.8", ""}), 1, writer.add_text("ffi_call_unix64")},
       {writer.add_module({"/nowhere/python3.12", ""}), 2, writer.add_text("run_interpreter")}});
  writer.add(event);
  event.type = EventType::cap;
  event.time_ns = kSecond;
  event.cap = 200 * kMiB;
  writer.add(event);
  // By a function without a name.
  event.type = EventType::refused;
  event.stack = writer.add_stack({{writer.add_module({"/nowhere/app", ""}), 3, 0}});
  writer.add(event);
  event.type = EventType::mark;
  for (int i = 0; i < 12; ++i) {
    event.api = writer.add_text("cuCtxCreate_v2");
    writer.add(event);
  }
  event.process = event.device = kNone;
  event.api = writer.add_text("other (PID 5) was not recorded: why");
  writer.add(event);
  writer.finish();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string path = argv[1];
  if (strcmp(argv[2], "story") == 0) {
    Story(path, 1).tell();
  } else if (strcmp(argv[2], "larger") == 0) {
    Story(path, 2).tell();
  } else if (strcmp(argv[2], "wrapped") == 0) {
    write_wrapped(path);
  } else if (strcmp(argv[2], "lowered") == 0) {
    write_lowered(path);
  } else {
    Writer writer(path, {});
    fracgpu::tests::Training training(writer, 1, 2'000);
    training.run(std::stoull(argv[2]));
    writer.finish();
  }
  return 0;
}
