// Memory and processes as the simulated libamd_smi reports them. The list of a device has those
// that hold something there, by the PIDs of the caller's namespace; those of KFD are for all
// devices, by the PIDs of the host.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "sim/amdsmi/state.h"

namespace sim {
namespace {

constexpr uint64_t kGttOfProcess = 2ULL << 20;

std::string command_of(uint32_t pid) {
  for (const ProcessInfo& process : rsmi_node().processes()) {
    if (static_cast<uint32_t>(process.pid) == pid) return process.command;
  }
  return "";
}

SmiMemoryUsage usage_of(uint64_t vram) {
  return {.gtt = kGttOfProcess, .cpu = 0, .vram = vram, .reserved = {}};
}

[[maybe_unused]] void fill(SmiProcess& to, uint32_t pid, uint64_t vram) {
  to = SmiProcess{};
  std::snprintf(to.name, sizeof to.name, "%s", command_of(pid).c_str());
  to.pid = pid;
  to.memory = kGttOfProcess + vram;
  to.usage = usage_of(vram);
}
[[maybe_unused]] void fill(uint32_t& to, uint32_t pid, uint64_t) {
  to = pid;
}

template <typename Entry>
amdsmi_status_t list_processes(int device, uint32_t* count, Entry* list) {
  if (count == nullptr) return AMDSMI_STATUS_INVAL;
  const uint32_t room = *count;
  if (room > 0 && list == nullptr) return AMDSMI_STATUS_INVAL;
  uint32_t there = 0;
  for (const auto& [pid, amounts] : rsmi_processes()) {
    const uint64_t vram = amounts[static_cast<size_t>(device)];
    if (vram == 0) continue;
    if (there < room) fill(list[there], pid, vram);
    ++there;
  }
  *count = there;
  return room > 0 && room < there ? AMDSMI_STATUS_OUT_OF_RESOURCES : AMDSMI_STATUS_SUCCESS;
}

}  // namespace
}  // namespace sim

SIM_API amdsmi_status_t amdsmi_get_gpu_memory_total(amdsmi_processor_handle handle,
                                                    rsmi_memory_type_t type, uint64_t* total) {
  SMI_CALL(amdsmi_get_gpu_memory_total);
  SMI_DEVICE(handle, device);
  return sim::smi_status(rsmi_dev_memory_total_get(static_cast<uint32_t>(device), type, total));
}

SIM_API amdsmi_status_t amdsmi_get_gpu_memory_usage(amdsmi_processor_handle handle,
                                                    rsmi_memory_type_t type, uint64_t* used) {
  SMI_CALL(amdsmi_get_gpu_memory_usage);
  SMI_DEVICE(handle, device);
  return sim::smi_status(rsmi_dev_memory_usage_get(static_cast<uint32_t>(device), type, used));
}

SIM_API amdsmi_status_t amdsmi_get_gpu_vram_usage(amdsmi_processor_handle handle,
                                                  sim::SmiVramUsage* usage) {
  SMI_CALL(amdsmi_get_gpu_vram_usage);
  SMI_DEVICE(handle, device);
  if (usage == nullptr) return AMDSMI_STATUS_INVAL;
  const int dev = sim::rsmi_device(static_cast<uint32_t>(device));
  uint64_t total = 0;
  rsmi_dev_memory_total_get(static_cast<uint32_t>(device), RSMI_MEM_TYPE_VRAM, &total);
  *usage = {.total_mib = static_cast<uint32_t>(total >> 20),
            .used_mib = static_cast<uint32_t>(sim::rsmi_node().used(dev) >> 20),
            .reserved = {}};
  return AMDSMI_STATUS_SUCCESS;
}

SIM_API amdsmi_status_t amdsmi_get_gpu_vram_info(amdsmi_processor_handle handle, void* info) {
  SMI_CALL(amdsmi_get_gpu_vram_info);
  SMI_DEVICE(handle, device);
  if (info == nullptr) return AMDSMI_STATUS_INVAL;
  uint64_t total = 0;
  rsmi_dev_memory_total_get(static_cast<uint32_t>(device), RSMI_MEM_TYPE_VRAM, &total);
  constexpr uint32_t kHbm3 = 4;
  if constexpr (sim::kOldSmi) {
    *static_cast<sim::OldVramInfo*>(info) = {.type = 1, .vendor = 0, .size_mib = total >> 20};
  } else {
    auto& to = *static_cast<sim::NewVramInfo*>(info);
    to = {.type = kHbm3,
          .vendor = {},
          .size_mib = total >> 20,
          .bit_width = 8192,
          .bandwidth = 5300,
          .reserved = {}};
    std::snprintf(to.vendor, sizeof to.vendor, "HYNIX");
  }
  return AMDSMI_STATUS_SUCCESS;
}

SIM_API amdsmi_status_t amdsmi_get_gpu_process_list(amdsmi_processor_handle handle, uint32_t* count,
                                                    void* list) {
  SMI_CALL(amdsmi_get_gpu_process_list);
  SMI_DEVICE(handle, device);
  if constexpr (sim::kListsPids) {
    return sim::list_processes(device, count, static_cast<uint32_t*>(list));
  } else {
    return sim::list_processes(device, count, static_cast<sim::SmiProcess*>(list));
  }
}

#if SIM_AMDSMI_VERSION == 24
SIM_API amdsmi_status_t amdsmi_get_gpu_process_info(amdsmi_processor_handle handle, uint32_t pid,
                                                    sim::SmiProcess* info) {
  SMI_CALL(amdsmi_get_gpu_process_info);
  SMI_DEVICE(handle, device);
  if (info == nullptr) return AMDSMI_STATUS_INVAL;
  const auto processes = sim::rsmi_processes();
  const auto found = processes.find(pid);
  if (found == processes.end()) return AMDSMI_STATUS_NOT_FOUND;
  sim::fill(*info, pid, found->second[static_cast<size_t>(device)]);
  return AMDSMI_STATUS_SUCCESS;
}
#endif

#if SIM_AMDSMI_VERSION >= 26
SIM_API amdsmi_status_t amdsmi_get_gpu_process_list_by_pid(amdsmi_processor_handle* handles,
                                                           uint32_t handle_count,
                                                           sim::SmiProcessOfPid* list,
                                                           uint32_t* count) {
  SMI_CALL(amdsmi_get_gpu_process_list_by_pid);
  if (handles == nullptr || count == nullptr) return AMDSMI_STATUS_INVAL;
  const uint32_t room = *count;
  if (room > 0 && list == nullptr) return AMDSMI_STATUS_INVAL;
  uint32_t there = 0;
  for (const auto& [pid, amounts] : sim::rsmi_processes()) {
    sim::SmiProcessOfPid entry{};
    for (uint32_t i = 0; i < handle_count; ++i) {
      SMI_DEVICE(handles[i], device);
      const uint64_t vram = amounts[static_cast<size_t>(device)];
      if (vram == 0) continue;
      entry.devices[entry.device_count++] = {.device = i,
                                             .memory = sim::kGttOfProcess + vram,
                                             .engines = {},
                                             .usage = sim::usage_of(vram),
                                             .reserved = {}};
    }
    if (entry.device_count == 0) continue;
    entry.pid = pid;
    std::snprintf(entry.name, sizeof entry.name, "%s", sim::command_of(pid).c_str());
    if (there < room) list[there] = entry;
    ++there;
  }
  *count = there;
  return room > 0 && room < there ? AMDSMI_STATUS_OUT_OF_RESOURCES : AMDSMI_STATUS_SUCCESS;
}
#endif

SIM_API amdsmi_status_t amdsmi_get_gpu_compute_process_info(sim::SmiComputeProcess* list,
                                                            uint32_t* count) {
  SMI_CALL(amdsmi_get_gpu_compute_process_info);
  static_assert(sizeof(sim::SmiComputeProcess) == sizeof(rsmi_process_info_t));
  return sim::smi_status(
      rsmi_compute_process_info_get(reinterpret_cast<rsmi_process_info_t*>(list), count));
}

SIM_API amdsmi_status_t amdsmi_get_gpu_compute_process_info_by_pid(uint32_t pid,
                                                                   sim::SmiComputeProcess* info) {
  SMI_CALL(amdsmi_get_gpu_compute_process_info_by_pid);
  return sim::smi_status(
      rsmi_compute_process_info_by_pid_get(pid, reinterpret_cast<rsmi_process_info_t*>(info)));
}

SIM_API amdsmi_status_t amdsmi_get_gpu_compute_process_gpus(uint32_t pid, uint32_t* devices,
                                                            uint32_t* count) {
  SMI_CALL(amdsmi_get_gpu_compute_process_gpus);
  return sim::smi_status(rsmi_compute_process_gpus_get(pid, devices, count));
}
