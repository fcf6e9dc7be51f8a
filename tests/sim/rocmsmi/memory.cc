// Memory and processes as the simulated librocm_smi64 reports them, straight from the node. The
// amounts of a device are what its kernel driver counts for everybody; the list of processes is
// KFD's: all that have opened it, with what they hold on all devices together.
#include "sim/rocmsmi/state.h"

namespace sim {

std::map<uint32_t, std::vector<uint64_t>> rsmi_processes() {
  const std::vector<int> devices = rsmi_devices();
  std::map<uint32_t, std::vector<uint64_t>> sums;
  for (const ProcessInfo& process : rsmi_node().processes()) {
    uint64_t bytes = 0;
    if (process.vendor != Vendor::kAmd || !rsmi_node().kfd_count(process.pid, 0, &bytes)) continue;
    std::vector<uint64_t>& sum = sums[static_cast<uint32_t>(process.pid)];
    sum.resize(devices.size());
    for (size_t i = 0; i < devices.size(); ++i) {
      rsmi_node().kfd_count(process.pid, devices[i], &sum[i]);
    }
  }
  return sums;
}

namespace {

constexpr uint64_t kGtt = 512ULL << 30, kGttUsed = 24ULL << 20;

rsmi_process_info_t info_of(uint32_t pid, uint64_t bytes) {
  return {.process_id = pid,
          .pasid = 0x8000 + pid % 0x1000,
          .vram_usage = bytes,
          .sdma_usage = 0,
          .cu_occupancy = 0};
}

uint64_t sum_of(const std::vector<uint64_t>& amounts) {
  uint64_t sum = 0;
  for (const uint64_t amount : amounts) sum += amount;
  return sum;
}

}  // namespace
}  // namespace sim

SIM_API rsmi_status_t rsmi_dev_memory_total_get(uint32_t device, rsmi_memory_type_t type,
                                                uint64_t* total) {
  RSMI_CALL(rsmi_dev_memory_total_get);
  RSMI_DEVICE(device, dev);
  if (total == nullptr || type > RSMI_MEM_TYPE_GTT) return RSMI_STATUS_INVALID_ARGS;
  const uint64_t carve_out = sim::rsmi_node().device(dev).carve_out;
  const uint64_t vram = carve_out != 0 ? carve_out : sim::rsmi_node().total(dev);
  *total = type == RSMI_MEM_TYPE_GTT ? sim::kGtt : vram;
  return RSMI_STATUS_SUCCESS;
}

SIM_API rsmi_status_t rsmi_dev_memory_usage_get(uint32_t device, rsmi_memory_type_t type,
                                                uint64_t* used) {
  RSMI_CALL(rsmi_dev_memory_usage_get);
  RSMI_DEVICE(device, dev);
  if (used == nullptr || type > RSMI_MEM_TYPE_GTT) return RSMI_STATUS_INVALID_ARGS;
  *used = type == RSMI_MEM_TYPE_GTT ? sim::kGttUsed : sim::rsmi_node().used(dev);
  return RSMI_STATUS_SUCCESS;
}

SIM_API rsmi_status_t rsmi_compute_process_info_get(rsmi_process_info_t* list, uint32_t* count) {
  RSMI_CALL(rsmi_compute_process_info_get);
  if (count == nullptr) return RSMI_STATUS_INVALID_ARGS;
  const auto processes = sim::rsmi_processes();
  uint32_t written = 0;
  for (const auto& [pid, amounts] : processes) {
    if (list == nullptr || written == *count) break;
    list[written++] = sim::info_of(pid, sim::sum_of(amounts));
  }
  if (list != nullptr && *count < processes.size()) return RSMI_STATUS_INSUFFICIENT_SIZE;
  *count = static_cast<uint32_t>(processes.size());
  return RSMI_STATUS_SUCCESS;
}

SIM_API rsmi_status_t rsmi_compute_process_info_by_pid_get(uint32_t pid,
                                                           rsmi_process_info_t* info) {
  RSMI_CALL(rsmi_compute_process_info_by_pid_get);
  if (info == nullptr) return RSMI_STATUS_INVALID_ARGS;
  const auto processes = sim::rsmi_processes();
  const auto found = processes.find(pid);
  if (found == processes.end()) return RSMI_STATUS_NOT_FOUND;
  *info = sim::info_of(pid, sim::sum_of(found->second));
  return RSMI_STATUS_SUCCESS;
}

SIM_API rsmi_status_t rsmi_compute_process_info_by_device_get(uint32_t pid, uint32_t device,
                                                              rsmi_process_info_t* info) {
  RSMI_CALL(rsmi_compute_process_info_by_device_get);
  if (info == nullptr || sim::rsmi_device(device) < 0) return RSMI_STATUS_INVALID_ARGS;
  const auto processes = sim::rsmi_processes();
  const auto found = processes.find(pid);
  if (found == processes.end()) return RSMI_STATUS_NOT_FOUND;
  *info = sim::info_of(pid, found->second[device]);
  return RSMI_STATUS_SUCCESS;
}

SIM_API rsmi_status_t rsmi_compute_process_gpus_get(uint32_t pid, uint32_t* devices,
                                                    uint32_t* count) {
  RSMI_CALL(rsmi_compute_process_gpus_get);
  if (count == nullptr) return RSMI_STATUS_INVALID_ARGS;
  const auto processes = sim::rsmi_processes();
  const auto found = processes.find(pid);
  if (found == processes.end()) return RSMI_STATUS_NOT_FOUND;
  uint32_t used = 0;
  for (uint32_t i = 0; i < found->second.size(); ++i) {
    if (found->second[i] == 0) continue;
    if (devices != nullptr && used < *count) devices[used] = i;
    ++used;
  }
  if (devices != nullptr && *count < used) return RSMI_STATUS_INSUFFICIENT_SIZE;
  *count = used;
  return RSMI_STATUS_SUCCESS;
}
