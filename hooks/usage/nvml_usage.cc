// Reads from NVML what each process holds; see nvml_usage.h.
//
// NVML is loaded into the process when the first context is made, unless it is there already, and
// is never shut down. Its process list names PIDs of the caller's own PID namespace since driver
// 535.113.01 and host PIDs before that, so with an older driver nothing is known in a private
// namespace.
#include "hooks/usage/nvml_usage.h"

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#include <atomic>

#include "hooks/smi/nvml/driver_version.h"
#include "hooks/smi/nvml/library.h"
#include "shim/base/environment.h"
#include "shim/base/real_dlfcn.h"
#include "shim/base/report.h"
#include "shim/base/sleep_lock.h"
#include "shim/config/identity.h"
#include "shim/process/hook_scope.h"
#include "shim/process/process.h"
#include "shim/vendor/process_list.h"

namespace fracgpu::nvml {
namespace {

enum class State { not_started, running, unavailable };
constinit std::atomic<State> state{State::not_started};
constinit SleepLock starting;

bool ready() {
  return state.load(std::memory_order_acquire) == State::running;
}

bool is_switched_off() {
  const char* const text = trusted_environment(kSwitch);
  if (text == nullptr || strcmp(text, "on") == 0) return false;
  if (strcmp(text, "off") == 0) return true;
  report(Level::error, "{}={} is neither \"on\" nor \"off\"; NVML is used", kSwitch,
         quoted(text).view());
  return false;
}

bool handle_of(const char* uuid, nvmlDevice_t& device) {
  return ready() && real::nvmlDeviceGetHandleByUUID(uuid, &device) == kSuccess;
}

// Of the GPU that a MIG instance is a part of, or else of the device itself: index and bus id are
// those of whole GPUs. (An instance has an index too, but among the instances of its GPU.)
bool gpu_handle_of(const char* uuid, nvmlDevice_t& device) {
  if (!handle_of(uuid, device)) return false;
  return !is_mig_key(uuid) ||
         real::nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device, &device) == kSuccess;
}

// Sums the entries of `pid` in one of NVML's lists. False when NVML does not report it.
template <typename Info, typename Real>
bool sum_of_pid(const Real& list, nvmlDevice_t device, uint32_t pid, uint64_t& bytes) {
  bytes = 0;
  ProcessList all(sizeof(Info));
  const auto read = [&](void* to, unsigned* count) {
    return list(device, count, static_cast<Info*>(to));
  };
  bool known = all.read_all(kInsufficientSize, read) == kSuccess;
  for (uint32_t i = 0; known && i < all.count(); ++i) {
    const Info& info = all.entries<Info>()[i];
    if (info.pid != pid) continue;
    known = known && info.usedGpuMemory != kNotAvailable;
    bytes += info.usedGpuMemory;
  }
  return known;
}

bool bytes_of_pid(uint32_t pid, const char* uuid, uint64_t& bytes) {
  HookScope scope;
  nvmlDevice_t device = nullptr;
  if (!handle_of(uuid, device)) return false;
  // _v3 is left alone: drivers 535.43 to 535.98 fill larger entries than its documented ones.
  if (real::nvmlDeviceGetComputeRunningProcesses_v2.exists()) {
    return sum_of_pid<nvmlProcessInfo_v2_t>(real::nvmlDeviceGetComputeRunningProcesses_v2, device,
                                            pid, bytes);
  }
  return sum_of_pid<nvmlProcessInfo_v1_t>(real::nvmlDeviceGetComputeRunningProcesses, device, pid,
                                          bytes);
}

bool memory_of(const char* uuid, nvmlMemory_t& memory) {
  HookScope scope;
  nvmlDevice_t device = nullptr;
  return handle_of(uuid, device) && real::nvmlDeviceGetMemoryInfo(device, &memory) == kSuccess;
}

}  // namespace

void start() {
  if (state.load(std::memory_order_acquire) != State::not_started) return;
  HookScope scope;
  const bool wanted = !is_switched_off();
  // Without a lock of ours: see VendorBackend::start.
  if (wanted && !library.resolve()) {
    const auto real_dlopen = real_dl_function<decltype(&::dlopen)>("dlopen");
    if (real_dlopen != nullptr) real_dlopen(library.soname().data(), RTLD_LAZY | RTLD_LOCAL);
  }
  const bool loaded = wanted && library.resolve();
  const Locked<SleepLock> lock(starting);
  if (state.load(std::memory_order_relaxed) != State::not_started) return;
  const bool running = loaded && real::nvmlInit_v2() == kSuccess;
  state.store(running ? State::running : State::unavailable, std::memory_order_release);
}

bool bytes_of_self(const char* uuid, uint64_t& bytes) {
  if (!ready() || !(in_host_pid_namespace() || lists_own_namespace(driver_version()))) {
    return false;
  }
  return bytes_of_pid(static_cast<uint32_t>(getpid()), uuid, bytes);
}

bool bytes_of(uint32_t host_pid, const char* uuid, uint64_t& bytes) {
  return in_host_pid_namespace() && bytes_of_pid(host_pid, uuid, bytes);
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
  nvmlMemory_t memory = {};
  if (!memory_of(uuid, memory)) return false;
  bytes = memory.total;
  return true;
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
  if (!ready()) return true;
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
