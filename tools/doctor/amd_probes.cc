// Looks up functions of AMD's libraries; see vendor_probes.h.
#include <fmt/core.h>

#include "hooks/smi/amdsmi/abi.h"
#include "hooks/smi/amdsmi/layout.h"
#include "hooks/smi/rocmsmi/abi.h"
#include "hooks/usage/kfd_topology.h"
#include "tools/doctor/probed_library.h"
#include "tools/doctor/vendor_probes.h"

// The addresses that the linker bound. They are null unless an object that exports the functions is
// loaded with this command, such as a preloaded library.
extern "C" {
[[gnu::weak]] int hipDeviceTotalMem(size_t*, int);
[[gnu::weak]] int hsa_amd_memory_pool_allocate(void*, size_t, unsigned, void**);
[[gnu::weak]] int amdsmi_get_gpu_memory_total(void*, int, uint64_t*);
[[gnu::weak]] int rsmi_dev_memory_total_get(uint32_t, int, uint64_t*);
}

namespace fracgpu::tools {
namespace {

using Total = ProbedLibrary::Total;

const std::vector<const char*> kHipNames = {"libamdhip64.so.7", "libamdhip64.so.6",
                                            "libamdhip64.so.5"};

// The ledger's key of the only device at a bus id; empty if several devices share it.
std::string amd_key_at(std::string_view bus_id) {
  BusId wanted;
  std::string found;
  if (!wanted.parse(bus_id)) return {};
  for (const kfd::GpuList gpus; const kfd::Gpu& gpu : gpus) {
    if (!wanted.selects(gpu.bus_id)) continue;
    if (!found.empty()) return {};
    found = gpu.key().c_str();
  }
  return found;
}

// The same for KFD's number.
std::string amd_key_of(uint64_t gpu_id) {
  kfd::Key key;
  return kfd::key_of_gpu_id(gpu_id, key) ? key.c_str() : "";
}

}  // namespace

void probe_hip(ProbeTeller& teller) {
  constexpr const char* kFunction = "hipDeviceTotalMem";
  ProbedLibrary hip(teller, kHipNames);
  int version = 0, count = 0;
  if (!hip || !hip.call("hipInit", 0U) || !hip.call("hipRuntimeGetVersion", &version) ||
      !hip.call("hipGetDeviceCount", &count)) {
    return;
  }
  hip.add_lookups(kFunction, reinterpret_cast<void*>(&hipDeviceTotalMem));
  if (hip.find<void>("hipGetProcAddress") != nullptr) {  // since 6.0
    hip.add_getter("hipGetProcAddress", kFunction, kFunction, version);
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
           [&](void* function) { return count == 0 ? Total() : total_of_number(function, 0); });
}

// The library under HIP. Its functions are not called, because that would make a second runtime
// beside HIP's.
void probe_hsa(ProbeTeller& teller) {
  ProbedLibrary hsa(teller, {"libhsa-runtime64.so.1"});
  if (!hsa) return;
  hsa.add_lookups("hsa_amd_memory_pool_allocate",
                  reinterpret_cast<void*>(&hsa_amd_memory_pool_allocate));
  hsa.tell("", [](void*) { return Total(); });
}

void probe_amdsmi(ProbeTeller& teller) {
  constexpr const char* kFunction = "amdsmi_get_gpu_memory_total";
  constexpr uint64_t kInitGpus = 2;  // AMDSMI_INIT_AMD_GPUS
  ProbedLibrary smi(teller, {"libamd_smi.so", "libamd_smi.so.27", "libamd_smi.so.26",
                             "libamd_smi.so.25", "libamd_smi.so.24"});
  uint32_t socket_count = 0;
  unsigned char version[256] = {};
  if (!smi || !smi.call("amdsmi_init", kInitGpus) ||
      !smi.call("amdsmi_get_lib_version", static_cast<void*>(version)) ||
      !smi.call("amdsmi_get_socket_handles", &socket_count, (void**)nullptr)) {
    return;
  }
  smi.add_lookups(kFunction, reinterpret_cast<void*>(&amdsmi_get_gpu_memory_total));
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
      unsigned char info[256] = {};  // begins with KFD's number
      const auto info_of = smi.find<int(void*, void*)>("amdsmi_get_gpu_kfd_info");
      const bool known = info_of != nullptr && info_of(device, info) == 0;
      smi.add_total(known ? amd_key_of(amdsmi::number_at<uint64_t>(info, 0)) : "", bytes);
      if (first == nullptr) first = device;
    }
  }
  smi.tell(fmt::format("{}", amdsmi::number_at<uint32_t>(version, 0)), [&](void* function) {
    uint64_t bytes = 0;
    const auto ask = reinterpret_cast<int (*)(void*, int, uint64_t*)>(function);
    return first != nullptr && ask(first, amdsmi::kVram, &bytes) == 0 ? Total(bytes) : Total();
  });
}

void probe_rocmsmi(ProbeTeller& teller) {
  constexpr const char* kFunction = "rsmi_dev_memory_total_get";
  ProbedLibrary smi(teller, {"librocm_smi64.so", "librocm_smi64.so.7", "librocm_smi64.so.6",
                             "librocm_smi64.so.5", "librocm_smi64.so.1"});
  uint32_t count = 0;
  if (!smi || !smi.call("rsmi_init", uint64_t{0}) ||
      !smi.call("rsmi_num_monitor_devices", &count)) {
    return;
  }
  smi.add_lookups(kFunction, reinterpret_cast<void*>(&rsmi_dev_memory_total_get));
  for (uint32_t i = 0; i < count; ++i) {
    uint64_t bytes = 0, gpu_id = 0;
    if (!smi.call(kFunction, i, rocmsmi::kVram, &bytes)) return;
    const auto id_of = smi.find<int(uint32_t, uint64_t*)>("rsmi_dev_guid_get");
    const bool known = id_of != nullptr && id_of(i, &gpu_id) == 0;
    smi.add_total(known ? amd_key_of(gpu_id) : "", bytes);
  }
  smi.tell("", [&](void* function) {
    uint64_t bytes = 0;
    const auto ask = reinterpret_cast<int (*)(uint32_t, int, uint64_t*)>(function);
    return count != 0 && ask(0, rocmsmi::kVram, &bytes) == 0 ? Total(bytes) : Total();
  });
}

void probe_hip_context(ProbeTeller& teller) {
  ProbedLibrary hip(teller, kHipNames);
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

}  // namespace fracgpu::tools
