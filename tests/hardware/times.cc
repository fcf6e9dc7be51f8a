// What calls take, run in turns with and without the library; the report has the ratio of the
// medians. And what is left after many pairs.
#include <unistd.h>

#include "tests/hardware/cuda.h"
#include "tests/hardware/kernels.h"
#include "tests/hardware/probes.h"

namespace hardware {
namespace {

// "", or why there is none.
std::string load_library(CUlibrary* library) {
  try {
    const std::string text = kFirstPtxLines + global_of(4096);
    const void* image = text.c_str();
    int* const no_options = nullptr;
    void** const no_values = nullptr;
    cuda("cuLibraryLoadData", library, image, no_options, no_values, 0u, no_options, no_values, 0u);
  } catch (const Unmeasured& error) {
    return error.what();
  }
  return "";
}

}  // namespace

void ask_times(const Options& options) {
  const std::string with = "time." + options.text("with", "plain") + ".";
  const auto measure = [&](const char* name, int count, const std::function<void()>& call) {
    const std::string key = with + name + "_us";
    question({key.c_str()}, [&] {
      call();
      fact(key, time_us(count, call));
    });
  };
  question({}, [] { begin_cuda(); });
  const CUstream stream = nullptr;
  measure("alloc_pair_4k", 500, [] {
    CUdeviceptr address = 0;
    cuda("cuMemAlloc_v2", &address, size_t{4 * kKiB});
    cuda("cuMemFree_v2", address);
  });
  measure("alloc_pair_64m", 100, [] {
    CUdeviceptr address = 0;
    cuda("cuMemAlloc_v2", &address, size_t{64 * kMiB});
    cuda("cuMemFree_v2", address);
  });
  measure("async_pair_2m", 500, [&] {
    CUdeviceptr address = 0;
    cuda("cuMemAllocAsync", &address, size_t{2 * kMiB}, stream);
    cuda("cuMemFreeAsync", address, stream);
  });
  measure("memory_info", 500, [] { cuda_memory(); });
  measure("array_pair", 500, [] {
    CUDA_ARRAY_DESCRIPTOR shape = {512, 512, 0x20, 1};  // CU_AD_FORMAT_FLOAT
    const CUDA_ARRAY_DESCRIPTOR* wanted = &shape;
    CUarray array = nullptr;
    cuda("cuArrayCreate_v2", &array, wanted);
    cuda("cuArrayDestroy", array);
  });
  measure("module_pair", 500, [] { cuda("cuModuleUnload", load_ptx(kSpin)); });
  // As cudaMemcpyToSymbol asks for a variable, each time.
  CUlibrary library = nullptr;
  const std::string failure = load_library(&library);
  measure("library_global", 10000, [&] {
    if (!failure.empty()) throw Unmeasured(failure);
    CUdeviceptr address = 0;
    size_t bytes = 0;
    cuda("cuLibraryGetGlobal", &address, &bytes, library, "room");
  });
  CUmodule module = nullptr;
  question({}, [&] { module = load_ptx(kSpin); });
  measure("launch", 500, [&] {
    if (module == nullptr) throw Unmeasured("the kernel's module cannot be loaded");
    launch(module, "spin", 0, stream);
  });
  question({}, [] { cuda("cuCtxSynchronize"); });
}

}  // namespace hardware
