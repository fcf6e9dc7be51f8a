// The processes that NVML lists: only the tenant's own, with the bytes that the ledger has for
// them. The driver also keeps accounts of processes. For running processes, only the tenant's own
// accounts are shown, with the ledger's peak. The owners of ended processes' accounts are no longer
// known, so those accounts stay as the driver has them.
//
// Entries are edited in NVML's array and moved together. The hook needs its own list only if the
// caller's array is too small for all processes but may hold the tenant's. PIDs mean different
// things with different drivers (list_meaning.h), so with a driver of unknown version the lists
// stay unchanged. A thread's PID is shown as its process's PID, and no process is shown twice.
// nvidia-smi 535 and later reads its table through a private interface, which is not hooked.
#include <unistd.h>

#include <algorithm>
#include <type_traits>

#include "hooks/smi/nvml/driver_version.h"
#include "hooks/smi/nvml/library.h"
#include "hooks/smi/nvml/list_meaning.h"
#include "hooks/smi/nvml/mig_instances.h"
#include "shim/base/report.h"
#include "shim/config/identity.h"
#include "shim/process/hook_scope.h"
#include "shim/process/tenant_view.h"
#include "shim/vendor/process_list.h"

namespace fracgpu::nvml {
namespace {

void report_unchanged(const char* why) {
  static std::atomic<bool> reported{false};
  if (reported.exchange(true)) return;
  report(Level::warn, "NVML's process lists are shown as they are, with every tenant's: {}", why);
}

// Whether the hooks understand the lists of this driver. `third`: of the third generation.
bool understood(const DriverVersion& version, bool third) {
  if (!version.known()) {
    report_unchanged("the driver does not report its version");
  } else if (third && !third_lists_as_documented(version)) {
    report_unchanged("drivers 535.43 to 535.98 may have entries of another size in them");
  } else {
    return true;
  }
  return false;
}

// Whether an entry may belong to this instance, by the instance ids in it. The oldest entries have
// no ids.
template <typename Info>
bool is_on(const Info& info, const Part& part) {
  if constexpr (requires { info.gpuInstanceId; }) {
    return info.gpuInstanceId == kNoInstance || part.gpu_instance == kNoInstance ||
           (info.gpuInstanceId == part.gpu_instance &&
            info.computeInstanceId == part.compute_instance);
  }
  return true;
}

// What a call requests of a process's account.
struct Account {
  unsigned int pid;
};
struct AccountedPeak {
  unsigned int pid;
  unsigned long long peakGpuMemory;
};

bool has_ended(nvmlDevice_t device, unsigned pid) {
  nvmlAccountingStats_t stats = {};
  return real::nvmlDeviceGetAccountingStats(device, pid, &stats) == kSuccess && !stats.isRunning;
}

class TenantFilter {
 public:
  TenantFilter(Process& process, nvmlDevice_t device, const DriverVersion& version)
      : observation_(process),
        device_(device),
        parts_(device),
        meaning_(meaning_of_lists(version)) {
    for (const Part& part : parts_) {
      TenantView ignored;
      capped_[&part - parts_.begin()] = observation_.device(part.key, 0, ignored);
    }
  }

  // Moves the entries that stay to the front, clears the rest, and returns how many stay.
  template <typename Info>
  unsigned apply(Info* infos, unsigned count) const {
    unsigned kept = 0;
    for (unsigned i = 0; i < count; ++i) {
      if (shows(infos[i]) && !(is_capped(infos[i]) && is_among(infos, kept, infos[i]))) {
        infos[kept++] = infos[i];
      }
    }
    std::fill(infos + kept, infos + count, Info{});
    return kept;
  }

  // Whether the entry is shown. Writes the ledger's figures into it.
  template <typename Info>
  bool shows(Info& info) const {
    if (!is_capped(info) || is_tenants(info)) return true;
    return std::is_same_v<Info, Account> && has_ended(device_, info.pid);
  }

 private:
  template <typename Info>
  bool is_capped(const Info& info) const {
    return std::any_of(parts_.begin(), parts_.end(), [&](const Part& part) {
      return is_on(info, part) && capped_[&part - parts_.begin()];
    });
  }

  template <typename Info>
  static bool is_among(const Info* infos, unsigned count, const Info& info) {
    return std::any_of(infos, infos + count, [&](const Info& other) {
      if constexpr (requires { info.gpuInstanceId; }) {
        return other.pid == info.pid && other.gpuInstanceId == info.gpuInstanceId &&
               other.computeInstanceId == info.computeInstanceId;
      }
      return other.pid == info.pid;
    });
  }

  // Whether the entry belongs to a process of the tenant. If so, writes the ledger's figures into
  // it.
  template <typename Info>
  bool is_tenants(Info& info) const {
    using Pids = ListMeaning::Pids;
    if (meaning_.pids == Pids::host) return edit(info, process_of_host(info.pid));
    if (meaning_.pids == Pids::unknown) return edit(info, process_of_either(info.pid));
    if (edit(info, process_of_own_namespace(info.pid))) return true;
    const uint32_t owner = owner_of(info.pid);
    // The process may be in a PID namespace inside ours, under another PID.
    if (!edit(info, process_of_own_namespace(owner)) && !edit(info, seen_from_inside(owner))) {
      return false;
    }
    info.pid = owner;
    return true;
  }

  // The process, in our namespace, that a listed number stands for.
  uint32_t owner_of(uint32_t pid) const {
    if (!meaning_.threads) return pid;
    if (stands_for_self(pid, meaning_)) return static_cast<uint32_t>(getpid());
    const uint32_t owner = process_of_thread(pid);
    return owner != 0 ? owner : pid;
  }

  // Writes the ledger's figure into the entry. False if the tenant has no such process.
  template <typename Info>
  bool edit(Info& info, const ProcessName& name) const {
    const int slot = observation_.find(name);
    if (slot < 0) return false;
    uint64_t held = 0, peak = 0;
    for (const Part& part : parts_) {
      if (!is_on(info, part)) continue;
      held += observation_.held(slot, part.key);
      peak += observation_.peak(slot, part.key);
    }
    if constexpr (requires { info.usedGpuMemory; }) info.usedGpuMemory = held;
    if constexpr (requires { info.peakGpuMemory; }) info.peakGpuMemory = peak;
    return true;
  }

  Observation observation_;
  nvmlDevice_t device_;
  Parts parts_;
  bool capped_[Parts::kMost] = {};
  ListMeaning meaning_;
};

// `ask(count, infos)` calls NVML, which writes at most `*count` entries to `infos`.
template <typename Info, typename Ask>
nvmlReturn_t processes(nvmlDevice_t device, unsigned* count, Info* infos, bool third,
                       const Ask& ask) {
  library.resolve();
  HookScope scope;
  const unsigned room = count != nullptr && infos != nullptr ? *count : 0;
  const nvmlReturn_t result = ask(count, infos);
  if ((result != kSuccess && result != kInsufficientSize) || count == nullptr) return result;
  Process* process = scope.outermost() ? Process::self() : nullptr;
  if (process == nullptr) return result;
  const DriverVersion version = driver_version();
  if (!understood(version, third)) return result;

  const TenantFilter filter(*process, device, version);
  if (result == kSuccess) {
    *count = filter.apply(infos, std::min(*count, room));
    return result;
  }
  ProcessList all(sizeof(Info));
  const auto read = [&](void* to, unsigned* in_out) { return ask(in_out, static_cast<Info*>(to)); };
  if (all.read_all(kInsufficientSize, read) != kSuccess) return result;
  *count = filter.apply(all.entries<Info>(), all.count());
  if (*count > room) return kInsufficientSize;
  all.copy_to(infos, *count);
  return kSuccess;
}

// The account of a process: `ask()` calls NVML, which fills in `stats`.
template <typename Stats, typename Ask>
nvmlReturn_t account(nvmlDevice_t device, unsigned pid, Stats* stats, const Ask& ask) {
  library.resolve();
  HookScope scope;
  const nvmlReturn_t result = ask();
  Process* process = scope.outermost() ? Process::self() : nullptr;
  if (result != kSuccess || process == nullptr || stats == nullptr) return result;
  const DriverVersion version = driver_version();
  if (!understood(version, false)) return result;
  AccountedPeak shown = {pid, stats->maxMemoryUsage};
  if (TenantFilter(*process, device, version).shows(shown)) {
    stats->maxMemoryUsage = shown.peakGpuMemory;
  } else if (stats->isRunning) {
    *stats = {};
    return kNotFound;
  }
  return result;
}

}  // namespace

nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int* count,
                                         unsigned int* pids) {
  static_assert(sizeof(Account) == sizeof(*pids));
  return processes(device, count, reinterpret_cast<Account*>(pids), false,
                   [&](unsigned* in_out, Account* into) {
                     return real::nvmlDeviceGetAccountingPids(
                         device, in_out, reinterpret_cast<unsigned int*>(into));
                   });
}

nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid,
                                          nvmlAccountingStats_t* stats) {
  return account(device, pid, stats,
                 [&] { return real::nvmlDeviceGetAccountingStats(device, pid, stats); });
}

nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t device, nvmlAccountingStats_v2_t* stats) {
  const unsigned pid = stats != nullptr ? stats->pid : 0;
  return account(device, pid, stats,
                 [&] { return real::nvmlDeviceGetAccountingStats_v2(device, stats); });
}

#define FRACGPU_PROCESS_LIST(name, Info, third)                                       \
  nvmlReturn_t name(nvmlDevice_t device, unsigned int* count, Info* infos) {          \
    return processes(device, count, infos, third, [&](unsigned* in_out, Info* into) { \
      return real::name(device, in_out, into);                                        \
    });                                                                               \
  }
#define FRACGPU_PROCESS_LISTS(name)                            \
  FRACGPU_PROCESS_LIST(name, nvmlProcessInfo_v1_t, false)      \
  FRACGPU_PROCESS_LIST(name##_v2, nvmlProcessInfo_v2_t, false) \
  FRACGPU_PROCESS_LIST(name##_v3, nvmlProcessInfo_v2_t, true)

FRACGPU_PROCESS_LISTS(nvmlDeviceGetComputeRunningProcesses)
FRACGPU_PROCESS_LISTS(nvmlDeviceGetGraphicsRunningProcesses)
FRACGPU_PROCESS_LISTS(nvmlDeviceGetMPSComputeRunningProcesses)

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                   nvmlProcessDetailList_v1_t* list) {
  library.resolve();
  if (list == nullptr || list->version != kDetailListV1) {
    const nvmlReturn_t result = real::nvmlDeviceGetRunningProcessDetailList(device, list);
    if (result == kSuccess && Process::self() != nullptr)
      report_unchanged("a newer form of the detail list was asked for");
    return result;
  }
  return processes(device, &list->numProcArrayEntries, list->procArray, false,
                   [&](unsigned* in_out, nvmlProcessDetail_v1_t* into) {
                     nvmlProcessDetailList_v1_t part = {kDetailListV1, list->mode, *in_out, into};
                     const nvmlReturn_t result =
                         real::nvmlDeviceGetRunningProcessDetailList(device, &part);
                     *in_out = part.numProcArrayEntries;
                     return result;
                   });
}

}  // namespace fracgpu::nvml
