// What no call names by size: contexts, local memory of kernels, limits. Without the library: what
// the driver takes for each. With it: whether the ledger follows.
#include <dlfcn.h>
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

// What the first call of cuBLAS takes: its code and its workspace.
void multiply_by_cublas() {
  void* library = nullptr;
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"}) {
    if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) throw Unmeasured("there is no libcublas");
  const auto create = reinterpret_cast<int (*)(void**)>(dlsym(library, "cublasCreate_v2"));
  const auto multiply =
      reinterpret_cast<int (*)(void*, int, int, int, int, int, const float*, CUdeviceptr, int,
                               CUdeviceptr, int, const float*, CUdeviceptr, int)>(
          dlsym(library, "cublasSgemm_v2"));
  if (create == nullptr || multiply == nullptr) throw Unmeasured("libcublas lacks its functions");
  void* handle = nullptr;
  if (const int rc = create(&handle)) {
    throw Unmeasured("cublasCreate: status " + std::to_string(rc));
  }
  constexpr int kSize = 64;
  CUdeviceptr matrix = 0;
  cuda("cuMemAlloc_v2", &matrix, size_t{kSize * kSize * sizeof(float)});
  const float one = 1;
  if (const int rc = multiply(handle, 0, 0, kSize, kSize, kSize, &one, matrix, kSize, matrix, kSize,
                              &one, matrix, kSize)) {
    throw Unmeasured("cublasSgemm: status " + std::to_string(rc));
  }
  cuda("cuCtxSynchronize");
}

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
  multiply_by_cublas();
  judge.step("cublas");
}

}  // namespace

void ask_contexts(const Options& options) {
  if (options.text("with", "plain") == "library") {
    question({"context.first_undercharged_bytes", "context.second_undercharged_bytes",
              "context.after_second_undercharged_bytes", "context.module_undercharged_bytes",
              "context.local_memory_undercharged_bytes", "context.stack_undercharged_bytes",
              "context.cublas_undercharged_bytes"},
             [] { steps<Charged>(); });
  } else {
    question({"context.first_bytes", "context.second_bytes", "context.after_second_bytes",
              "context.module_bytes", "context.local_memory_bytes", "context.stack_bytes",
              "context.cublas_bytes"},
             [] { steps<Plain>(); });
  }
}

}  // namespace hardware
