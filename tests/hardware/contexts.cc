// What no call names by size: contexts, local memory of kernels, limits. Without the library: what
// the driver takes for each. With it: whether the ledger follows.
#include <unistd.h>

#include "tests/hardware/cuda.h"
#include "tests/hardware/kernels.h"
#include "tests/hardware/observer.h"
#include "tests/hardware/probes.h"

namespace hardware {
namespace {

// How much each step adds by the driver's own count.
class Plain {
 public:
  static constexpr char kStackFact[] = "context.stack_limit_bytes";
  void step(const char* key) {
    uint64_t now = 0;
    if (!nvml::bytes_of(getpid(), &now)) throw Unmeasured("NVML's list does not name this process");
    const uint64_t device = nvml::memory().used;
    fact(std::string("context.") + key + "_bytes", static_cast<double>(now) - last_);
    if (device_ != 0) {
      fact(std::string("context.") + key + "_device_bytes",
           static_cast<double>(device) - static_cast<double>(device_));
    }
    last_ = static_cast<double>(now);
    device_ = device;
  }

 private:
  double last_ = 0;
  uint64_t device_ = 0;
};

// How much of it the ledger has, once the library has had a reason to look.
class Charged {
 public:
  static constexpr char kStackFact[] = "context.stack_limit_under_cap_bytes";
  void step(const char* key) {
    // Cannot be granted, so the library reads the driver's count before it says so.
    CUdeviceptr address = 0;
    if (try_cuda("cuMemAlloc_v2", &address, size_t{1} << 50) == 0) {
      throw Unmeasured("a request of a PiB was granted");
    }
    const Books::Page page = books_.look();
    if (!page.driver_knows) throw Unmeasured("NVML's list does not name this process");
    fact(std::string("context.") + key + "_undercharged_bytes",
         page.driver > page.ledger ? static_cast<double>(page.driver - page.ledger) : 0);
  }

 private:
  Books books_;
};

template <typename Judge>
void steps() {
  Judge judge;
  begin_cuda();
  judge.step("first");
  CUcontext second = nullptr;
  cuda("cuCtxCreate_v2", &second, 0u, CUdevice{0});
  judge.step("second");
  cuda("cuCtxDestroy_v2", second);
  begin_cuda();
  judge.step("after_second");
  int multiprocessors = 0;
  cuda("cuDeviceGetAttribute", &multiprocessors, kMultiprocessors, CUdevice{0});
  const CUmodule module = load_ptx(kLocalMemory);
  judge.step("module");
  launch(module, "local_memory", 0, nullptr, static_cast<unsigned>(multiprocessors));
  cuda("cuCtxSynchronize");
  judge.step("local_memory");
  // 64 KiB for each thread that can be resident may not fit under the cap.
  int rc = kOutOfMemory;
  for (size_t stack = 64 * kKiB; rc == kOutOfMemory && stack >= 2 * kKiB; stack /= 2) {
    rc = try_cuda("cuCtxSetLimit", kLimitStack, stack);
    if (rc == 0) fact(Judge::kStackFact, static_cast<double>(stack));
  }
  if (rc != 0) throw Unmeasured(cuda_failure("cuCtxSetLimit", rc));
  launch(module, "local_memory", 0, nullptr, static_cast<unsigned>(multiprocessors));
  cuda("cuCtxSynchronize");
  judge.step("stack");
}

}  // namespace

void ask_contexts(const Options& options) {
  if (options.text("with", "plain") == "library") {
    question({"context.first_undercharged_bytes", "context.second_undercharged_bytes",
              "context.after_second_undercharged_bytes", "context.module_undercharged_bytes",
              "context.local_memory_undercharged_bytes", "context.stack_undercharged_bytes"},
             [] { steps<Charged>(); });
  } else {
    question({"context.first_bytes", "context.second_bytes", "context.after_second_bytes",
              "context.module_bytes", "context.local_memory_bytes", "context.stack_bytes"},
             [] { steps<Plain>(); });
  }
}

}  // namespace hardware
