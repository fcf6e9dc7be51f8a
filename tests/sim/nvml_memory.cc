// Memory and processes as the simulated NVML reports them, straight from the physical node.
// Reading reaps the dead first. The first MemoryInfo calls the second through the PLT, as the
// vendor's does. A process list with too little room says INSUFFICIENT_SIZE and how much is needed.
#include <map>
#include <vector>

#include "nvml_state.h"

namespace {

struct Row {
  unsigned pid;
  unsigned long long used;
};

// One row per pid with a context on the device: a process that has replaced its image may own two
// rows for a moment.
std::vector<Row> rows_of(int dev) {
  std::map<unsigned, unsigned long long> sums;
  for (const sim::ProcessInfo& process : sim::nvml_node().processes()) {
    const auto& use = process.device[static_cast<size_t>(dev)];
    if (use.total() != 0) sums[static_cast<unsigned>(process.pid)] += use.total();
  }
  std::vector<Row> rows;
  for (const auto& [pid, used] : sums) rows.push_back({pid, used});
  return rows;
}

void fill(nvmlProcessInfo_v1_t* to, const Row& row) {
  *to = {row.pid, row.used};
}
void fill(nvmlProcessInfo_v2_t* to, const Row& row) {
  *to = {row.pid, row.used, kNoInstance, kNoInstance};
}

template <typename Info>
nvmlReturn_t list(nvmlDevice_t handle, unsigned* count, Info* infos, bool any) {
  NVML_DEVICE(handle, dev);
  if (count == nullptr || (*count > 0 && infos == nullptr)) return NVML_ERROR_INVALID_ARGUMENT;
  const std::vector<Row> rows = any ? rows_of(dev) : std::vector<Row>();
  const unsigned room = *count;
  *count = static_cast<unsigned>(rows.size());
  if (room < rows.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (size_t i = 0; i < rows.size(); ++i) fill(&infos[i], rows[i]);
  return NVML_SUCCESS;
}

}  // namespace

SIM_API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t* memory) {
  NVML_CALL(nvmlDeviceGetMemoryInfo_v2);
  NVML_DEVICE(handle, dev);
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (memory->version != kMemoryV2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  memory->total = sim::nvml_node().total(dev);
  memory->reserved = 0;
  memory->used = sim::nvml_node().used(dev);
  memory->free = memory->total - memory->used;
  return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t* memory) {
  if (const int result = sim::ordered("nvmlDeviceGetMemoryInfo")) return result;
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlMemory_v2_t now = {};
  now.version = kMemoryV2;
  if (const nvmlReturn_t result = nvmlDeviceGetMemoryInfo_v2(handle, &now)) return result;
  memory->total = now.total;
  memory->used = now.used + now.reserved;
  memory->free = now.free;
  return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t handle, nvmlBAR1Memory_t* memory) {
  NVML_CALL(nvmlDeviceGetBAR1MemoryInfo);
  NVML_DEVICE(handle, dev);
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *memory = {128ULL << 30, (128ULL << 30) - (2ULL << 20), 2ULL << 20};
  return NVML_SUCCESS;
}

#define SIM_PROCESS_LIST(name, any)                                                              \
  SIM_API nvmlReturn_t name(nvmlDevice_t handle, unsigned* count, nvmlProcessInfo_v1_t* infos) { \
    NVML_CALL(name);                                                                             \
    return list(handle, count, infos, any);                                                      \
  }                                                                                              \
  SIM_API nvmlReturn_t name##_v2(nvmlDevice_t handle, unsigned* count,                           \
                                 nvmlProcessInfo_v2_t* infos) {                                  \
    NVML_CALL(name##_v2);                                                                        \
    return list(handle, count, infos, any);                                                      \
  }                                                                                              \
  SIM_API nvmlReturn_t name##_v3(nvmlDevice_t handle, unsigned* count,                           \
                                 nvmlProcessInfo_v2_t* infos) {                                  \
    NVML_CALL(name##_v3);                                                                        \
    return list(handle, count, infos, any);                                                      \
  }

SIM_PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses, true)
SIM_PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses, false)
SIM_PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses, false)

SIM_API nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t handle,
                                                           nvmlProcessDetailList_t* details) {
  NVML_CALL(nvmlDeviceGetRunningProcessDetailList);
  NVML_DEVICE(handle, dev);
  if (details == nullptr || details->mode > 2) return NVML_ERROR_INVALID_ARGUMENT;
  if (details->version != kDetailListV1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  const std::vector<Row> rows = details->mode == 0 ? rows_of(dev) : std::vector<Row>();
  const unsigned room = details->entries != nullptr ? details->count : 0;
  details->count = static_cast<unsigned>(rows.size());
  if (room < rows.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (size_t i = 0; i < rows.size(); ++i) {
    details->entries[i] = {rows[i].pid, rows[i].used, kNoInstance, kNoInstance, 0};
  }
  return NVML_SUCCESS;
}
