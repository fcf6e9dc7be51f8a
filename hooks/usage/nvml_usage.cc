// Reads from NVML what each process holds; see nvml_usage.h.
//
// The first context loads NVML into the process, unless it is already loaded. It is never shut
// down. Its lists are used only if they can be true (list_meaning.h).
#include "hooks/usage/nvml_usage.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "hooks/smi/nvml/driver_version.h"
#include "hooks/smi/nvml/library.h"
#include "hooks/smi/nvml/list_meaning.h"
#include "hooks/smi/nvml/usable_memory.h"
#include "shim/base/clock.h"
#include "shim/base/real_dlfcn.h"
#include "shim/base/report.h"
#include "shim/config/identity.h"
#include "shim/config/switch.h"
#include "shim/process/hook_scope.h"
#include "shim/process/process.h"
#include "shim/vendor/process_list.h"

namespace fracgpu::nvml {
namespace {

enum class State { not_started, running, unavailable };
constinit std::atomic<State> state{State::not_started};

bool ready() {
  return state.load(std::memory_order_acquire) == State::running;
}

bool is_switched_off() {
  return !switch_in_environment(kSwitch, "NVML is used").value_or(true);
}

bool handle_of(const char* uuid, nvmlDevice_t& device) {
  return ready() && real::nvmlDeviceGetHandleByUUID(uuid, &device) == kSuccess;
}

// The handle of the GPU that contains a MIG instance, or else of the device itself: index and bus
// id belong to whole GPUs. (An instance's index counts only among the instances of its GPU.)
bool gpu_handle_of(const char* uuid, nvmlDevice_t& device) {
  if (!handle_of(uuid, device)) return false;
  return !is_mig_key(uuid) ||
         real::nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device, &device) == kSuccess;
}

// Calls visit(entry) for each entry of one of NVML's lists. False if NVML does not return the list,
// or if `visit` returns false because an amount is missing.
template <typename Info, typename Real, typename Visit>
bool read_list(const Real& list, nvmlDevice_t device, const Visit& visit) {
  ProcessList all(sizeof(Info));
  const auto read = [&](void* to, unsigned* count) {
    return list(device, count, static_cast<Info*>(to));
  };
  if (all.read_all(kInsufficientSize, read) != kSuccess) return false;
  for (uint32_t i = 0; i < all.count(); ++i) {
    const Info& info = all.entries<Info>()[i];
    ListedBytes::Entry entry{.pid = info.pid,
                             .gpu_instance = kNoInstance,
                             .compute_instance = kNoInstance,
                             .bytes = info.usedGpuMemory};
    if constexpr (requires { info.gpuInstanceId; }) {
      entry.gpu_instance = info.gpuInstanceId;
      entry.compute_instance = info.computeInstanceId;
    }
    if (!visit(entry)) return false;
  }
  return true;
}

// Not _v3: drivers 535.43 to 535.98 fill larger entries than the documented ones.
template <typename Visit>
bool read_list(nvmlDevice_t device, const Visit& visit) {
  if (real::nvmlDeviceGetComputeRunningProcesses_v2.exists()) {
    return read_list<nvmlProcessInfo_v2_t>(real::nvmlDeviceGetComputeRunningProcesses_v2, device,
                                           visit);
  }
  return read_list<nvmlProcessInfo_v1_t>(real::nvmlDeviceGetComputeRunningProcesses, device, visit);
}

// MPS clients have a separate list. A driver without MPS returns none.
template <typename Visit>
void read_mps_list(nvmlDevice_t device, const Visit& visit) {
  if (real::nvmlDeviceGetMPSComputeRunningProcesses_v2.exists()) {
    read_list<nvmlProcessInfo_v2_t>(real::nvmlDeviceGetMPSComputeRunningProcesses_v2, device,
                                    visit);
  } else {
    read_list<nvmlProcessInfo_v1_t>(real::nvmlDeviceGetMPSComputeRunningProcesses, device, visit);
  }
}

// Processes that only draw have a separate list as well. It has the same amounts.
template <typename Visit>
void read_graphics_list(nvmlDevice_t device, const Visit& visit) {
  if (real::nvmlDeviceGetGraphicsRunningProcesses_v2.exists()) {
    read_list<nvmlProcessInfo_v2_t>(real::nvmlDeviceGetGraphicsRunningProcesses_v2, device, visit);
  } else {
    read_list<nvmlProcessInfo_v1_t>(real::nvmlDeviceGetGraphicsRunningProcesses, device, visit);
  }
}

// A device without its own frame buffer, such as GB10, lists the sum of what a process has of the
// machine's memory, including pinned host memory. NVML is asked once for each handle. A device has
// one handle and a MIG instance another.
bool has_frame_buffer(nvmlDevice_t device) {
  static constinit std::atomic<nvmlDevice_t> known[64];
  std::atomic<nvmlDevice_t>* free = nullptr;
  for (auto& each : known) {
    const nvmlDevice_t with = each.load(std::memory_order_relaxed);
    if (with == device) return true;
    if (with != nullptr) continue;
    free = &each;
    break;
  }
  nvmlMemory_t memory = {};
  const int result = real::nvmlDeviceGetMemoryInfo(device, &memory);
  if (result == kSuccess && free != nullptr) free->store(device, std::memory_order_relaxed);
  return result != kNotSupported;
}

bool memory_of(const char* uuid, nvmlMemory_t& memory) {
  HookScope scope;
  nvmlDevice_t device = nullptr;
  return handle_of(uuid, device) && real::nvmlDeviceGetMemoryInfo(device, &memory) == kSuccess;
}

// A listed entry without a living owner may be the memory of an ended process. This is how long it
// counts as such. The kernel has already closed the driver for that process, and closing nearly
// always releases the memory before that. A slower release lets a surviving process exceed the cap
// for a moment (0 to 400 ms tried against releases after 50 to 400). A refusal waits 300 ms for
// dead processes, so more than that would be of no use.
constexpr uint64_t kPatience_ms = 200;

// Dead processes that are waited for, and the start of the wait: PID and coarse_now_ms() in one
// word. Processes that do not fit are not waited for.
constinit std::atomic<uint64_t> awaited[64];

// Whether the machine may have NVIDIA devices, if NVML does not report it: by what the kernel
// driver or WSL's driver shows.
bool is_driver_here() {
  return access("/proc/driver/nvidia/version", F_OK) == 0 || access("/dev/nvidiactl", F_OK) == 0 ||
         access("/dev/dxg", F_OK) == 0;
}

bool may_still_be_listed(uint32_t pid) {
  if (!has_ended(pid)) return true;
  const auto now = static_cast<uint32_t>(coarse_now_ms());
  std::atomic<uint64_t>* place = nullptr;
  for (auto& each : awaited) {
    const uint64_t word = each.load(std::memory_order_relaxed);
    const uint32_t age_ms = now - static_cast<uint32_t>(word);
    // An old entry belongs to an earlier process with this PID.
    const bool is_old = age_ms > 60'000;
    if (word >> 32 == pid && !is_old) return age_ms < kPatience_ms;
    if (place == nullptr && (word == 0 || is_old)) place = &each;
  }
  if (place != nullptr) place->store(uint64_t{pid} << 32 | now, std::memory_order_relaxed);
  return place != nullptr;
}

}  // namespace

void start() {
  if (state.load(std::memory_order_acquire) != State::not_started) return;
  HookScope scope;
  const bool wanted = !is_switched_off();
  // This holds no lock of ours: see VendorBackend::start.
  if (wanted && !library.resolve()) {
    const auto real_dlopen = real_dl_function<decltype(&::dlopen)>("dlopen");
    const auto real_dlerror = real_dl_function<decltype(&::dlerror)>("dlerror");
    // Otherwise the program would take our failure for one of its own.
    if (real_dlopen != nullptr && real_dlerror != nullptr &&
        real_dlopen(library.soname().data(), RTLD_LAZY | RTLD_LOCAL) == nullptr)
      real_dlerror();
  }
  // Several threads may be here at once: NVML counts its users and has its own lock.
  const bool running = wanted && library.resolve() && real::nvmlInit_v2() == kSuccess;
  State before = State::not_started;
  state.compare_exchange_strong(before, running ? State::running : State::unavailable,
                                std::memory_order_acq_rel);
}

bool bytes_of_self(const char* uuid, uint64_t& bytes) {
  HookScope scope;
  nvmlDevice_t device = nullptr;
  if (!handle_of(uuid, device)) return false;
  const ListMeaning meaning = meaning_of_lists(driver_version());
  if (meaning.pids != ListMeaning::Pids::callers || !meaning.amounts || !has_frame_buffer(device)) {
    return false;
  }
  // A process that was listed once and is no longer listed holds nothing. Before its first listing,
  // it may be listed under the number of an ended thread.
  static constinit std::atomic<uint32_t> listed_pid{0};
  const auto self = static_cast<uint32_t>(getpid());
  ListedBytes own;
  bool is_told = true;
  const auto add = [&](const ListedBytes::Entry& entry) {
    if (!stands_for_self(entry.pid, meaning)) return true;
    own.add(entry, entry.pid == self, meaning);
    is_told = entry.bytes != kNotAvailable;
    return is_told;
  };
  if (!read_list(device, add)) return false;
  if (!own.any()) read_mps_list(device, add);
  if (!own.any()) read_graphics_list(device, add);
  if (!is_told) return false;
  if (own.any()) listed_pid.store(self, std::memory_order_relaxed);
  if (meaning.threads && listed_pid.load(std::memory_order_relaxed) != self) return false;
  return own.sum(bytes);
}

bool bytes_of(uint32_t host_pid, const char* uuid, uint64_t& bytes) {
  HookScope scope;
  nvmlDevice_t device = nullptr;
  if (!in_host_pid_namespace() || !handle_of(uuid, device)) return false;
  const ListMeaning meaning = meaning_of_lists(driver_version());
  bool is_listed = false, is_told = true, nobodys = false;
  bytes = 0;
  const auto look = [&](const ListedBytes::Entry& entry) {
    const bool is_process = entry.pid == host_pid;
    const uint32_t owner =
        is_process || !meaning.threads ? entry.pid : process_of_thread(entry.pid);
    if (owner == host_pid) {
      is_listed = true;
      is_told = is_told && (is_process || meaning.amounts_of_threads);
      bytes = std::max<uint64_t>(bytes, entry.bytes);
    }
    nobodys = nobodys || owner == 0;
    return entry.bytes != kNotAvailable;
  };
  const bool known = read_list(device, look);
  if (!is_listed) read_mps_list(device, look);
  if (!is_listed) read_graphics_list(device, look);
  // A process listed without an amount still holds memory. An entry without a living owner may also
  // belong to this process, which may have opened the driver from a thread.
  if (bytes == 0 && ((is_listed && !is_told) || (nobodys && may_still_be_listed(host_pid)))) {
    bytes = 1;
  }
  return known;
}

bool index_of(const char* uuid, int& index) {
  HookScope scope;
  nvmlDevice_t device = nullptr;
  unsigned value = 0;
  if (!gpu_handle_of(uuid, device) || real::nvmlDeviceGetIndex(device, &value) != kSuccess) {
    return false;
  }
  index = static_cast<int>(value);
  return true;
}

bool physical_bytes(const char* uuid, uint64_t& bytes) {
  HookScope scope;
  nvmlDevice_t device = nullptr;
  return handle_of(uuid, device) && usable_bytes(device, bytes);
}

bool used_bytes(const char* uuid, uint64_t& bytes) {
  nvmlMemory_t memory = {};
  if (!memory_of(uuid, memory)) return false;
  bytes = memory.used;
  return true;
}

bool bus_id_of(const char* uuid, BusId& bus_id) {
  HookScope scope;
  nvmlDevice_t device = nullptr;
  nvmlPciInfo_t pci = {};
  if (!gpu_handle_of(uuid, device) || real::nvmlDeviceGetPciInfo_v3(device, &pci) != kSuccess) {
    return false;
  }
  bus_id = {.domain = pci.domain, .bus = pci.bus, .device = pci.device};
  return true;
}

bool is_mig_key(const char* uuid) {
  return strncmp(uuid, "MIG-", 4) == 0;
}

bool gpu_of(const char* uuid, Text<64>& gpu_uuid) {
  HookScope scope;
  nvmlDevice_t device = nullptr;
  char name[kUuidBytes];
  if (!is_mig_key(uuid) || !gpu_handle_of(uuid, device) ||
      real::nvmlDeviceGetUUID(device, name, sizeof name) != kSuccess) {
    return false;
  }
  gpu_uuid.assign(name);
  return true;
}

bool device_may_exist(const Selector& selector) {
  HookScope scope;
  if (!ready()) return is_driver_here();  // a library of NVIDIA's alone makes no device
  nvmlDevice_t device = nullptr;
  if (selector.kind == Selector::Kind::index) {
    unsigned count = 0;
    return real::nvmlDeviceGetCount_v2(&count) != kSuccess ||
           selector.index < static_cast<int>(count);
  }
  if (selector.kind == Selector::Kind::bus_id) {
    const BusId& at = selector.bus_id;
    Text<32> text;
    text.format("{:08x}:{:02x}:{:02x}.{:x}", at.domain, at.bus, at.device, at.function);
    return at.partition < 0 &&
           real::nvmlDeviceGetHandleByPciBusId_v2(text.c_str(), &device) == kSuccess;
  }
  return real::nvmlDeviceGetHandleByUUID(selector.key.c_str(), &device) != kNotFound;
}

}  // namespace fracgpu::nvml
