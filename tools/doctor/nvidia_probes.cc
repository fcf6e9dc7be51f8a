// Looks up functions of NVIDIA's libraries; see vendor_probes.h.
#include <fmt/core.h>
#include <string.h>

#include "hooks/smi/nvml/abi.h"
#include "tools/doctor/vendor_probes.h"
#include "tools/machine/nvml_library.h"

// The addresses that the linker bound. They are null unless an object that exports the functions is
// loaded with this command, such as a preloaded library.
extern "C" {
[[gnu::weak]] int cuDeviceTotalMem_v2(size_t*, int);
[[gnu::weak]] int nvmlDeviceGetMemoryInfo(void*, void*);
}

namespace fracgpu::tools {
namespace {

using Total = ProbedLibrary::Total;

}  // namespace

// The second version of the call returns a MIG instance's UUID, the first its GPU's.
std::string cuda_key(const ProbedLibrary& cuda, int device) {
  using Get = int(unsigned char*, int);
  const auto first = cuda.find<Get>("cuDeviceGetUuid"),
             second = cuda.find<Get>("cuDeviceGetUuid_v2");
  unsigned char of_gpu[16], uuid[16];
  const bool knows_gpu = first != nullptr && first(of_gpu, device) == 0;
  const bool knows_device = second != nullptr && second(uuid, device) == 0;
  if (!knows_gpu && !knows_device) return {};
  if (!knows_device) memcpy(uuid, of_gpu, sizeof uuid);
  const bool is_instance = knows_gpu && memcmp(uuid, of_gpu, sizeof uuid) != 0;
  std::string key = is_instance ? "MIG-" : "GPU-";
  for (int i = 0; i < 16; ++i) {
    key += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
  }
  return key;
}

void probe_cuda(ProbeTeller& teller) {
  constexpr const char* kFunction = "cuDeviceTotalMem_v2";
  ProbedLibrary cuda(teller, {"libcuda.so.1"});
  int version = 0, count = 0;
  if (!cuda || !cuda.call("cuInit", 0U) || !cuda.call("cuDriverGetVersion", &version) ||
      !cuda.call("cuDeviceGetCount", &count)) {
    return;
  }
  cuda.add_lookups(kFunction, reinterpret_cast<void*>(&cuDeviceTotalMem_v2));
  cuda.add_getter("cuGetProcAddress_v2", kFunction, "cuDeviceTotalMem", 12000);
  std::vector<int> devices(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    if (!cuda.call("cuDeviceGet", &devices[static_cast<size_t>(i)], i)) return;
    size_t bytes = 0;
    if (!cuda.call(kFunction, &bytes, devices[static_cast<size_t>(i)])) return;
    cuda.add_total(cuda_key(cuda, devices[static_cast<size_t>(i)]), bytes);
  }
  cuda.tell(version_text(version, 1000, 10), [&](void* function) {
    return devices.empty() ? Total() : total_of_number(function, devices[0]);
  });
}

void probe_nvml(ProbeTeller& teller) {
  constexpr const char* kFunction = "nvmlDeviceGetMemoryInfo";
  ProbedLibrary library(teller, {"libnvidia-ml.so.1"});
  unsigned count = 0;
  char version[96] = "";
  if (!library || !library.call("nvmlInit_v2") ||
      !library.call("nvmlSystemGetDriverVersion", &version[0], unsigned{sizeof version}) ||
      !library.call("nvmlDeviceGetCount_v2", &count)) {
    return;
  }
  library.add_lookups(kFunction, reinterpret_cast<void*>(&nvmlDeviceGetMemoryInfo));
  const auto add_total = [&](nvml::nvmlDevice_t device) {
    nvml::nvmlMemory_t memory = {};
    char uuid[nvml::kUuidBytes] = "";
    // Without a frame buffer, as on GB10, there is no total to compare.
    const auto ask = library.find<int(nvml::nvmlDevice_t, nvml::nvmlMemory_t*)>(kFunction);
    if (ask != nullptr && ask(device, &memory) == nvml::kNotSupported) return true;
    if (!library.call("nvmlDeviceGetUUID", device, &uuid[0], unsigned{sizeof uuid}) ||
        !library.call(kFunction, device, &memory)) {
      return false;
    }
    library.add_total(uuid, memory.total);
    return true;
  };
  nvml::nvmlDevice_t first = nullptr;
  for (unsigned i = count; i-- > 0;) {
    if (!library.call("nvmlDeviceGetHandleByIndex_v2", i, &first) || !add_total(first)) return;
    const auto instances = mig_instances(library, first);
    if (!instances) continue;
    for (const MigDevice& instance : *instances) {
      if (!add_total(instance.handle)) return;
    }
  }
  library.tell(version, [&](void* function) {
    nvml::nvmlMemory_t memory = {};
    const auto ask = reinterpret_cast<int (*)(nvml::nvmlDevice_t, nvml::nvmlMemory_t*)>(function);
    return count != 0 && ask(first, &memory) == 0 ? Total(memory.total) : Total();
  });
}

// cuMemGetInfo needs a context on each device.
void probe_cuda_context(ProbeTeller& teller) {
  ProbedLibrary cuda(teller, {"libcuda.so.1"});
  int count = 0, device = 0;
  if (!cuda || !cuda.call("cuInit", 0U) || !cuda.call("cuDeviceGetCount", &count)) return;
  for (int i = 0; i < count; ++i) {
    void* context = nullptr;
    size_t free = 0, total = 0;
    if (!cuda.call("cuDeviceGet", &device, i) ||
        !cuda.call("cuDevicePrimaryCtxRetain", &context, device) ||
        !cuda.call("cuCtxSetCurrent", context) || !cuda.call("cuMemGetInfo_v2", &free, &total)) {
      return;
    }
    cuda.add_total(cuda_key(cuda, device), total);
    if (!cuda.call("cuDevicePrimaryCtxRelease_v2", device)) return;
  }
  cuda.tell("", [](void*) { return Total(); });
}

}  // namespace fracgpu::tools
