// Goes through the doors of each vendor's library; see vendor_probes.h. Every function is asked
// for the size of the device's memory, which needs no context and takes no memory.
#include "tools/doctor/vendor_probes.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <functional>
#include <optional>

#include "hooks/amdsmi/abi.h"
#include "hooks/amdsmi/layout.h"
#include "hooks/kfd/truth.h"
#include "hooks/nvml/abi.h"
#include "hooks/rocmsmi/abi.h"
#include "tools/doctor/mapped_library.h"

// The linker's own idea of where these are: nowhere, unless something that exports them is loaded
// with this command, as a preloaded library is.
extern "C" {
[[gnu::weak]] int cuDeviceTotalMem_v2(size_t*, int);
[[gnu::weak]] int nvmlDeviceGetMemoryInfo(void*, void*);
[[gnu::weak]] int hipDeviceTotalMem(size_t*, int);
[[gnu::weak]] int hsa_amd_memory_pool_allocate(void*, size_t, unsigned, void**);
[[gnu::weak]] int amdsmi_get_gpu_memory_total(void*, int, uint64_t*);
[[gnu::weak]] int rsmi_dev_memory_total_get(uint32_t, int, uint64_t*);
}

namespace fracgpu::tools {
namespace {

using nlohmann::json;
using Total = std::optional<uint64_t>;

// A library that is open, and what was found out about it.
class Vendor {
 public:
  Vendor(ProbeTeller& teller, const std::vector<const char*>& names) : teller_(teller) {
    std::string why;
    for (const char* const name : names) {
      teller_.step(fmt::format("loading {}", name));
      handle_ = dlopen(name, RTLD_LAZY | RTLD_GLOBAL);
      if (handle_ != nullptr) {
        teller_.tell("library", name);
        return;
      }
      const char* const error = dlerror();
      if (why.empty() && error != nullptr) why = error;
    }
    teller_.tell("missing", why);
  }
  explicit operator bool() const { return handle_ != nullptr; }

  template <typename Function>
  Function* find(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(handle_, name));
  }

  // Calls a function, 0 being success; false, which is told, when it is missing or fails.
  template <typename... Parameters>
  bool call(const char* name, Parameters... arguments) const {
    teller_.step(name);
    const auto function = find<int(Parameters...)>(name);
    const int result = function == nullptr ? -1 : function(arguments...);
    if (result == 0) return true;
    teller_.tell("error", function == nullptr ? fmt::format("there is no {}", name)
                                              : fmt::format("{} failed with {}", name, result));
    return false;
  }

  // The ways to the function. `linked` is where the linker bound it.
  void add_doors(const char* function, void* linked) {
    add("link", function, linked);
    add("dlsym", function, dlsym(handle_, function));
    add("RTLD_DEFAULT", function, dlsym(RTLD_DEFAULT, function));
    // Without the library nothing is found: vendors' functions have no versions, but HIP's.
    if (void* const found = dlvsym(handle_, function, "ANY_1.0")) add("dlvsym", function, found);
  }
  void add(const std::string& door, const char* function, void* address) {
    doors_.push_back({door, function, address});
  }

  // What the library says of a device's memory.
  void add_total(const std::string& key, uint64_t bytes) {
    totals_.push_back({{"key", key}, {"total", bytes}});
  }

  // Asks every door for the first device's memory, and tells all.
  void tell(const std::string& version, const std::function<Total(void*)>& ask) {
    json doors = json::array();
    for (const Door& door : doors_) {
      teller_.step(fmt::format("{} by {}", door.function, door.name));
      Dl_info info = {};
      const bool known = door.address != nullptr && dladdr(door.address, &info) != 0;
      const std::string_view file = known && info.dli_fname != nullptr ? info.dli_fname : "";
      const bool hooked = file.substr(file.rfind('/') + 1).starts_with(kLibrary);
      const Total total = door.address == nullptr ? Total() : ask(door.address);
      doors.push_back({{"door", door.name},
                       {"function", door.function},
                       {"found", door.address != nullptr},
                       {"hooked", hooked},
                       {"total", total ? json(*total) : json(nullptr)}});
    }
    teller_.tell("version", version);
    teller_.tell("doors", doors);
    teller_.tell("totals", totals_);
  }

 private:
  struct Door {
    std::string name;
    const char* function;
    void* address;
  };
  ProbeTeller& teller_;
  void* handle_ = nullptr;
  std::vector<Door> doors_{};
  json totals_ = json::array();
};

// CUDA's and HIP's getters have one form.
void* by_getter(const Vendor& vendor, const char* getter, const char* name, int version) {
  const auto get = vendor.find<int(const char*, void**, int, uint64_t, void*)>(getter);
  void* found = nullptr;
  int status[4] = {};  // some versions write one number there
  return get != nullptr && get(name, &found, version, 0, status) == 0 ? found : nullptr;
}

std::string version_text(int number, int major_unit, int minor_unit) {
  return fmt::format("{}.{}", number / major_unit, number % major_unit / minor_unit);
}

// cuDeviceTotalMem and hipDeviceTotalMem.
Total total_of_number(void* address, int device) {
  size_t bytes = 0;
  const auto ask = reinterpret_cast<int (*)(size_t*, int)>(address);
  return ask(&bytes, device) == 0 ? Total(bytes) : std::nullopt;
}

std::string cuda_key(const Vendor& cuda, int device) {
  using Get = int(unsigned char*, int);
  auto* uuid_of = cuda.find<Get>("cuDeviceGetUuid_v2");
  if (uuid_of == nullptr) uuid_of = cuda.find<Get>("cuDeviceGetUuid");
  unsigned char uuid[16];
  if (uuid_of == nullptr || uuid_of(uuid, device) != 0) return {};
  std::string key = "GPU-";
  for (int i = 0; i < 16; ++i) {
    key += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
  }
  return key;
}

void probe_cuda(ProbeTeller& teller) {
  constexpr const char* kFunction = "cuDeviceTotalMem_v2";
  Vendor cuda(teller, {"libcuda.so.1"});
  int version = 0, count = 0;
  if (!cuda || !cuda.call("cuInit", 0U) || !cuda.call("cuDriverGetVersion", &version) ||
      !cuda.call("cuDeviceGetCount", &count)) {
    return;
  }
  cuda.add_doors(kFunction, reinterpret_cast<void*>(&cuDeviceTotalMem_v2));
  cuda.add("cuGetProcAddress", kFunction,
           by_getter(cuda, "cuGetProcAddress_v2", "cuDeviceTotalMem", 12000));
  std::vector<int> devices(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    if (!cuda.call("cuDeviceGet", &devices[static_cast<size_t>(i)], i)) return;
    size_t bytes = 0;
    if (!cuda.call(kFunction, &bytes, devices[static_cast<size_t>(i)])) return;
    cuda.add_total(cuda_key(cuda, devices[static_cast<size_t>(i)]), bytes);
  }
  cuda.tell(version_text(version, 1000, 10), [&](void* door) {
    return devices.empty() ? Total() : total_of_number(door, devices[0]);
  });
}

void probe_nvml(ProbeTeller& teller) {
  constexpr const char* kFunction = "nvmlDeviceGetMemoryInfo";
  Vendor library(teller, {"libnvidia-ml.so.1"});
  unsigned count = 0;
  char version[96] = "";
  if (!library || !library.call("nvmlInit_v2") ||
      !library.call("nvmlSystemGetDriverVersion", &version[0], unsigned{sizeof version}) ||
      !library.call("nvmlDeviceGetCount_v2", &count)) {
    return;
  }
  library.add_doors(kFunction, reinterpret_cast<void*>(&nvmlDeviceGetMemoryInfo));
  nvml::nvmlDevice_t first = nullptr;
  for (unsigned i = count; i-- > 0;) {
    nvml::nvmlMemory_t memory = {};
    char uuid[nvml::kUuidBytes] = "";
    if (!library.call("nvmlDeviceGetHandleByIndex_v2", i, &first) ||
        !library.call("nvmlDeviceGetUUID", first, &uuid[0], unsigned{sizeof uuid}) ||
        !library.call(kFunction, first, &memory)) {
      return;
    }
    library.add_total(uuid, memory.total);
  }
  library.tell(version, [&](void* door) {
    nvml::nvmlMemory_t memory = {};
    const auto ask = reinterpret_cast<int (*)(nvml::nvmlDevice_t, nvml::nvmlMemory_t*)>(door);
    return count != 0 && ask(first, &memory) == 0 ? Total(memory.total) : Total();
  });
}

// The ledger's key of the one device at a bus id; empty where several share it.
std::string amd_key_at(std::string_view bus_id) {
  BusId wanted, at;
  kfd::Key key;
  std::string found;
  if (!wanted.parse(bus_id)) return {};
  for (int i = 0; kfd::key_of_index(i, key); ++i) {
    if (!kfd::bus_id_of(key.c_str(), at) || !wanted.selects(at)) continue;
    if (!found.empty()) return {};
    found = key.c_str();
  }
  return found;
}

const std::vector<const char*> kHipNames = {"libamdhip64.so.7", "libamdhip64.so.6",
                                            "libamdhip64.so.5"};

void probe_hip(ProbeTeller& teller) {
  constexpr const char* kFunction = "hipDeviceTotalMem";
  Vendor hip(teller, kHipNames);
  int version = 0, count = 0;
  if (!hip || !hip.call("hipInit", 0U) || !hip.call("hipRuntimeGetVersion", &version) ||
      !hip.call("hipGetDeviceCount", &count)) {
    return;
  }
  hip.add_doors(kFunction, reinterpret_cast<void*>(&hipDeviceTotalMem));
  if (hip.find<void>("hipGetProcAddress") != nullptr) {  // came with 6.0
    hip.add("hipGetProcAddress", kFunction,
            by_getter(hip, "hipGetProcAddress", kFunction, version));
  }
  for (int i = 0; i < count; ++i) {
    size_t bytes = 0;
    char bus_id[32] = "";
    if (!hip.call("hipDeviceGetPCIBusId", &bus_id[0], int{sizeof bus_id}, i) ||
        !hip.call(kFunction, &bytes, i)) {
      return;
    }
    hip.add_total(amd_key_at(bus_id), bytes);
  }
  hip.tell(version_text(version, 10000000, 100000),
           [&](void* door) { return count == 0 ? Total() : total_of_number(door, 0); });
}

// HIP's own way to memory. Not called: it would make a runtime beside HIP's.
void probe_hsa(ProbeTeller& teller) {
  Vendor hsa(teller, {"libhsa-runtime64.so.1"});
  if (!hsa) return;
  hsa.add_doors("hsa_amd_memory_pool_allocate",
                reinterpret_cast<void*>(&hsa_amd_memory_pool_allocate));
  hsa.tell("", [](void*) { return Total(); });
}

std::string amd_key_of(uint64_t gpu_id) {
  kfd::Key key;
  return kfd::key_of_gpu_id(gpu_id, key) ? key.c_str() : "";
}

void probe_amdsmi(ProbeTeller& teller) {
  constexpr const char* kFunction = "amdsmi_get_gpu_memory_total";
  constexpr uint64_t kInitGpus = 2;  // AMDSMI_INIT_AMD_GPUS
  Vendor smi(teller, {"libamd_smi.so", "libamd_smi.so.27", "libamd_smi.so.26", "libamd_smi.so.25",
                      "libamd_smi.so.24"});
  uint32_t socket_count = 0;
  unsigned char version[256] = {};
  if (!smi || !smi.call("amdsmi_init", kInitGpus) ||
      !smi.call("amdsmi_get_lib_version", static_cast<void*>(version)) ||
      !smi.call("amdsmi_get_socket_handles", &socket_count, (void**)nullptr)) {
    return;
  }
  smi.add_doors(kFunction, reinterpret_cast<void*>(&amdsmi_get_gpu_memory_total));
  std::vector<void*> sockets(socket_count);
  if (!smi.call("amdsmi_get_socket_handles", &socket_count, sockets.data())) return;
  void* first = nullptr;
  for (void* const socket : sockets) {
    uint32_t count = 0;
    if (!smi.call("amdsmi_get_processor_handles", socket, &count, (void**)nullptr)) return;
    std::vector<void*> devices(count);
    if (!smi.call("amdsmi_get_processor_handles", socket, &count, devices.data())) return;
    for (void* const device : devices) {
      uint64_t bytes = 0;
      if (!smi.call(kFunction, device, amdsmi::kVram, &bytes)) return;
      unsigned char info[256] = {};  // begins with KFD's number of the device
      const auto info_of = smi.find<int(void*, void*)>("amdsmi_get_gpu_kfd_info");
      const bool known = info_of != nullptr && info_of(device, info) == 0;
      smi.add_total(known ? amd_key_of(amdsmi::number_at<uint64_t>(info, 0)) : "", bytes);
      if (first == nullptr) first = device;
    }
  }
  smi.tell(fmt::format("{}", amdsmi::number_at<uint32_t>(version, 0)), [&](void* door) {
    uint64_t bytes = 0;
    const auto ask = reinterpret_cast<int (*)(void*, int, uint64_t*)>(door);
    return first != nullptr && ask(first, amdsmi::kVram, &bytes) == 0 ? Total(bytes) : Total();
  });
}

void probe_rocmsmi(ProbeTeller& teller) {
  constexpr const char* kFunction = "rsmi_dev_memory_total_get";
  Vendor smi(teller, {"librocm_smi64.so", "librocm_smi64.so.7", "librocm_smi64.so.1"});
  uint32_t count = 0;
  if (!smi || !smi.call("rsmi_init", uint64_t{0}) ||
      !smi.call("rsmi_num_monitor_devices", &count)) {
    return;
  }
  smi.add_doors(kFunction, reinterpret_cast<void*>(&rsmi_dev_memory_total_get));
  for (uint32_t i = 0; i < count; ++i) {
    uint64_t bytes = 0, gpu_id = 0;
    if (!smi.call(kFunction, i, rocmsmi::kVram, &bytes)) return;
    const auto id_of = smi.find<int(uint32_t, uint64_t*)>("rsmi_dev_guid_get");
    const bool known = id_of != nullptr && id_of(i, &gpu_id) == 0;
    smi.add_total(known ? amd_key_of(gpu_id) : "", bytes);
  }
  smi.tell("", [&](void* door) {
    uint64_t bytes = 0;
    const auto ask = reinterpret_cast<int (*)(uint32_t, int, uint64_t*)>(door);
    return count != 0 && ask(0, rocmsmi::kVram, &bytes) == 0 ? Total(bytes) : Total();
  });
}

// What cuMemGetInfo says needs a context on each device.
void probe_cuda_context(ProbeTeller& teller) {
  Vendor cuda(teller, {"libcuda.so.1"});
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

void probe_hip_context(ProbeTeller& teller) {
  Vendor hip(teller, kHipNames);
  int count = 0;
  if (!hip || !hip.call("hipInit", 0U) || !hip.call("hipGetDeviceCount", &count)) return;
  for (int i = 0; i < count; ++i) {
    size_t free = 0, total = 0;
    char bus_id[32] = "";
    if (!hip.call("hipSetDevice", i) || !hip.call("hipMemGetInfo", &free, &total) ||
        !hip.call("hipDeviceGetPCIBusId", &bus_id[0], int{sizeof bus_id}, i)) {
      return;
    }
    hip.add_total(amd_key_at(bus_id), total);
  }
  hip.tell("", [](void*) { return Total(); });
}

struct Probe {
  const char* name;
  void (*probe)(ProbeTeller&);
  bool makes_context;
};
constexpr Probe kProbes[] = {{"cuda", probe_cuda, false},
                             {"nvml", probe_nvml, false},
                             {"hip", probe_hip, false},
                             {"hsa", probe_hsa, false},
                             {"amdsmi", probe_amdsmi, false},
                             {"rocmsmi", probe_rocmsmi, false},
                             {"cuda-context", probe_cuda_context, true},
                             {"hip-context", probe_hip_context, true}};

}  // namespace

std::vector<std::string> vendor_probes(bool with_contexts) {
  std::vector<std::string> names;
  for (const Probe& each : kProbes) {
    if (with_contexts || !each.makes_context) names.emplace_back(each.name);
  }
  return names;
}

int probe_vendor(const std::string& name, ProbeTeller& teller) {
  for (const Probe& each : kProbes) {
    if (name != each.name) continue;
    each.probe(teller);
    return 0;
  }
  return 2;
}

}  // namespace fracgpu::tools
