// Process lists of the simulated NVML, straight from the physical node. Reading reaps the dead
// first. A list with too little room says INSUFFICIENT_SIZE and how much is needed. As in the
// vendor's library, older generations of a list call newer ones through the PLT. Drivers from
// 535.43 to before 535.104 fill larger entries in the third generation. FRACGPU_SIM_NVML_GRAPHICS=1
// puts every process into the graphics list too. While the file that FRACGPU_SIM_NVML_SAYS names
// is there, every process is said to have as many MiB as it says, whatever it has.
// With FRACGPU_SIM_NVML_ACCOUNTING=PID:MiB the driver keeps accounts: of those that run, with what
// they have as their most, and of one that has ended.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/nvml/pids.h"
#include "sim/nvml/state.h"

namespace {

struct Row {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};

// One opening of the driver by a process.
struct Client {
  int host_pid, shown_pid;
  unsigned long long used;
};

// A process that has replaced its image may own two rows for a moment.
std::vector<Client> clients_on(int dev, const sim::MigDevice* mig, const sim::ListRules& rules) {
  std::vector<Client> clients;
  for (const sim::ProcessInfo& process : sim::nvml_node().processes()) {
    const auto& use = process.device[static_cast<size_t>(dev)];
    if (use.total() == 0 || (mig != nullptr && process.mig_device != mig->serial)) continue;
    const int shown = sim::pid_for_caller(process, rules);
    // Managed memory belongs to no client: the kernel's driver for it (UVM) is one of its own.
    // Where there is no frame buffer, what a client has of the machine's memory is summed instead:
    // pinned memory too (ogkm, gpu_rmapi.c, `isZeroFb`).
    const bool frame_buffer = sim::nvml_node().device(dev).frame_buffer;
    const auto used =
        use.total() - use.managed_bytes + (frame_buffer ? uint64_t{0} : use.pinned_bytes);
    clients.push_back({process.host_pid, shown, used});
    for (int i = 1; i < process.clients; ++i) clients.push_back({process.host_pid, shown, 0});
  }
  return clients;
}

bool is_told_otherwise(unsigned long long* bytes) {
  const char* path = std::getenv("FRACGPU_SIM_NVML_SAYS");
  std::ifstream file(path != nullptr ? path : "");
  if (!(file >> *bytes)) return false;
  *bytes <<= 20;
  return true;
}

// As the kernel driver does it: first it lists clients by number, leaving out processes that it has
// already, and then it looks up each number's memory.
void add_rows(int dev, const sim::MigDevice* mig, std::vector<Row>* rows) {
  const sim::ListRules rules =
      sim::list_rules(sim::nvml_driver_version(), sim::nvml_node().open_modules());
  const std::vector<Client> clients = clients_on(dev, mig, rules);
  std::vector<int> pids;
  for (const Client& client : clients) {
    const int known_as = rules.repeats_clients ? client.host_pid : client.shown_pid;
    const bool known = std::find(pids.begin(), pids.end(), known_as) != pids.end();
    if (!known && client.shown_pid != 0) pids.push_back(client.shown_pid);
  }
  unsigned gpu_instance = kNoInstance, compute_instance = kNoInstance;
  if (mig != nullptr) {
    gpu_instance = sim::nvml_node().device(dev).gpu_instance;
    compute_instance = sim::compute_instance(sim::nvml_node(), *mig).id;
  }
  for (const int pid : pids) {
    unsigned long long used = 0;
    for (const Client& client : clients) {
      if ((rules.memory_by_host_pid ? client.host_pid : client.shown_pid) == pid)
        used += client.used;
    }
    is_told_otherwise(&used);
    rows->push_back({static_cast<unsigned>(pid), used, gpu_instance, compute_instance});
  }
}

std::vector<Row> rows_of(nvmlDevice_t handle, int dev) {
  std::vector<Row> rows;
  add_rows(dev, sim::nvml_mig_device(handle), &rows);
  for (const sim::MigDevice& device : sim::mig_devices(sim::nvml_node(), dev))
    add_rows(device.dev, &device, &rows);
  return rows;
}

// What the third generation of the lists had in between; that they differ is public, as is that it
// was one number more.
struct LargerInfo {
  nvmlProcessInfo_v2_t info;
  unsigned long long protected_used;
};

void fill(nvmlProcessInfo_v2_t* to, const Row& row) {
  *to = {row.pid, row.used, row.gpu_instance, row.compute_instance};
}
void fill(LargerInfo* to, const Row& row) {
  fill(&to->info, row);
  to->protected_used = 0;
}
void fill(nvmlProcessDetail_t* to, const Row& row) {
  *to = {row.pid, row.used, row.gpu_instance, row.compute_instance, 0};
}

// FRACGPU_SIM_NVML_MPS: what MPS makes of the lists. "clients": processes are in its list instead
// of the list of compute processes. "server": they are there without an amount, and the server,
// which is nobody of the node, has all of it.
std::string_view mps() {
  const char* const text = std::getenv("FRACGPU_SIM_NVML_MPS");
  return text != nullptr ? text : "";
}

enum class Listed { kNobody, kAll, kWithoutAmount, kServer };

Listed compute_list() {
  return mps() == "clients" ? Listed::kNobody : mps() == "server" ? Listed::kServer : Listed::kAll;
}
Listed mps_list() {
  return mps() == "clients"  ? Listed::kAll
         : mps() == "server" ? Listed::kWithoutAmount
                             : Listed::kNobody;
}
Listed graphics_list() {
  return std::getenv("FRACGPU_SIM_NVML_GRAPHICS") != nullptr ? Listed::kAll : Listed::kNobody;
}

std::vector<Row> rows_of(nvmlDevice_t handle, int dev, Listed listed) {
  constexpr unsigned kServerPid = 4194301;
  if (listed == Listed::kNobody) return {};
  std::vector<Row> rows = rows_of(handle, dev);
  if (listed == Listed::kAll) return rows;
  Row server = {kServerPid, 0, kNoInstance, kNoInstance};
  for (Row& row : rows) server.used += std::exchange(row.used, 0);
  return listed == Listed::kServer ? std::vector<Row>{server} : rows;
}

template <typename Info>
nvmlReturn_t list(nvmlDevice_t handle, unsigned* count, Info* infos, Listed listed) {
  NVML_DEVICE(handle, dev);
  if (count == nullptr || (*count > 0 && infos == nullptr)) return NVML_ERROR_INVALID_ARGUMENT;
  const std::vector<Row> rows = rows_of(handle, dev, listed);
  const unsigned room = *count;
  *count = static_cast<unsigned>(rows.size());
  if (room < rows.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (size_t i = 0; i < rows.size(); ++i) fill(&infos[i], rows[i]);
  return NVML_SUCCESS;
}

nvmlReturn_t newest_list(nvmlDevice_t handle, unsigned* count, nvmlProcessInfo_v2_t* infos,
                         Listed listed) {
  const char* version = sim::nvml_driver_version();
  if (sim::driver_is_since(version, 535, 43, 0) && !sim::driver_is_since(version, 535, 104, 0)) {
    return list(handle, count, reinterpret_cast<LargerInfo*>(infos), listed);
  }
  return list(handle, count, infos, listed);
}

// The first generation's entries are the front of the second's.
template <typename Newer>
nvmlReturn_t narrow_list(nvmlDevice_t handle, unsigned* count, nvmlProcessInfo_v1_t* infos,
                         Newer newer) {
  if (count == nullptr || (*count > 0 && infos == nullptr)) return NVML_ERROR_INVALID_ARGUMENT;
  std::vector<nvmlProcessInfo_v2_t> all(*count);
  const nvmlReturn_t result = newer(handle, count, all.empty() ? nullptr : all.data());
  if (result != NVML_SUCCESS) return result;
  for (unsigned i = 0; i < *count; ++i) infos[i] = {all[i].pid, all[i].used};
  return NVML_SUCCESS;
}

}  // namespace

#define SIM_PROCESS_LIST(name, listed)                                                           \
  SIM_API nvmlReturn_t name##_v3(nvmlDevice_t handle, unsigned* count,                           \
                                 nvmlProcessInfo_v2_t* infos) {                                  \
    NVML_CALL(name##_v3);                                                                        \
    return newest_list(handle, count, infos, listed);                                            \
  }                                                                                              \
  SIM_API nvmlReturn_t name##_v2(nvmlDevice_t handle, unsigned* count,                           \
                                 nvmlProcessInfo_v2_t* infos) {                                  \
    NVML_CALL(name##_v2);                                                                        \
    return list(handle, count, infos, listed);                                                   \
  }                                                                                              \
  SIM_API nvmlReturn_t name(nvmlDevice_t handle, unsigned* count, nvmlProcessInfo_v1_t* infos) { \
    NVML_CALL(name);                                                                             \
    return narrow_list(handle, count, infos, name##_v2);                                         \
  }

SIM_PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses, compute_list())
SIM_PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses, graphics_list())
SIM_PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses, mps_list())

SIM_API nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t handle,
                                                           nvmlProcessDetailList_t* details) {
  NVML_CALL(nvmlDeviceGetRunningProcessDetailList);
  if (details == nullptr || details->mode > 2) return NVML_ERROR_INVALID_ARGUMENT;
  if (details->version != kDetailListV1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  if (details->entries == nullptr) details->count = 0;
  const Listed listed[] = {compute_list(), graphics_list(), mps_list()};
  return list(handle, &details->count, details->entries, listed[details->mode]);
}

namespace {

bool keeps_accounts() {
  return std::getenv("FRACGPU_SIM_NVML_ACCOUNTING") != nullptr;
}

// "PID:MiB" of a process that has ended.
bool ended_account(unsigned* pid, unsigned long long* bytes) {
  const char* text = std::getenv("FRACGPU_SIM_NVML_ACCOUNTING");
  if (text == nullptr || std::sscanf(text, "%u:%llu", pid, bytes) != 2) return false;
  *bytes <<= 20;
  return true;
}

nvmlReturn_t account_of(nvmlDevice_t handle, int dev, unsigned pid, nvmlAccountingStats_t* stats) {
  unsigned ended = 0;
  unsigned long long bytes = 0;
  if (!keeps_accounts()) return NVML_ERROR_NOT_SUPPORTED;
  for (const Row& row : rows_of(handle, dev)) {
    if (row.pid != pid) continue;
    *stats = {.gpu_percent = 3, .most_memory = row.used, .start = 1, .running = 1};
    return NVML_SUCCESS;
  }
  if (!ended_account(&ended, &bytes) || ended != pid) return NVML_ERROR_NOT_FOUND;
  *stats = {.gpu_percent = 5, .most_memory = bytes, .time = 70, .start = 1};
  return NVML_SUCCESS;
}

}  // namespace

SIM_API nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t handle, unsigned* mode) {
  NVML_CALL(nvmlDeviceGetAccountingMode);
  NVML_DEVICE(handle, dev);
  if (mode == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *mode = keeps_accounts() ? 1 : 0;
  return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t handle, unsigned* count,
                                                 unsigned* pids) {
  NVML_CALL(nvmlDeviceGetAccountingPids);
  NVML_DEVICE(handle, dev);
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (!keeps_accounts()) return NVML_ERROR_NOT_SUPPORTED;
  std::vector<unsigned> known;
  for (const Row& row : rows_of(handle, dev)) known.push_back(row.pid);
  unsigned ended = 0;
  unsigned long long bytes = 0;
  if (ended_account(&ended, &bytes)) known.push_back(ended);
  const unsigned room = pids != nullptr ? *count : 0;
  *count = static_cast<unsigned>(known.size());
  if (room < known.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::copy(known.begin(), known.end(), pids);
  return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t handle, unsigned pid,
                                                  nvmlAccountingStats_t* stats) {
  NVML_CALL(nvmlDeviceGetAccountingStats);
  NVML_DEVICE(handle, dev);
  if (stats == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return account_of(handle, dev, pid, stats);
}

SIM_API nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t handle,
                                                     nvmlAccountingStats_v2_t* stats) {
  NVML_CALL(nvmlDeviceGetAccountingStats_v2);
  NVML_DEVICE(handle, dev);
  if (stats == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlAccountingStats_t first = {};
  if (const nvmlReturn_t result = account_of(handle, dev, stats->pid, &first)) return result;
  *stats = {.pid = stats->pid,
            .running = first.running,
            .gpu_percent = first.gpu_percent,
            .most_memory = first.most_memory,
            .time = first.time,
            .start = first.start};
  return NVML_SUCCESS;
}
