// Makes the Process, reads the configuration, and registers devices; see process.h.
#include "shim/process.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "shim/clock.h"
#include "shim/identity.h"
#include "shim/observation.h"
#include "shim/truth.h"

namespace fracgpu {
namespace {

constexpr char kLimitVariable[] = "FRACGPU_MEMORY_LIMIT";

void* map_anonymous(size_t size) {
  void* bytes = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return bytes == MAP_FAILED ? nullptr : bytes;
}

Ledger::LetGo driver_let_go(uint32_t host_pid, uint64_t start_time, const char* device_key) {
  // What the driver says of a PID that is used again is about its new owner.
  const uint64_t now = start_time_on_host(host_pid);
  if (now != 0 && start_time != 0 && now != start_time) return Ledger::LetGo::reused;
  // Where it has not told anything yet, a second failure is believed to be for good.
  for (int attempt = 0; attempt < 2; ++attempt) {
    uint64_t bytes = 0;
    if (truth::bytes_of(host_pid, device_key, bytes)) {
      return bytes == 0 ? Ledger::LetGo::yes : Ledger::LetGo::no;
    }
  }
  return Ledger::LetGo::unknown;
}

}  // namespace

// Not zero to begin with: it is written in every process, and .data has a page that the loader has
// written already, while .bss would get one for this alone.
std::atomic<CapAnswer> cap_answer{CapAnswer::unknown};

bool look_for_cap() {
  const bool configured = trusted_environment(kLimitVariable) != nullptr ||
                          access(kCeilingFile, F_OK) == 0 || errno == EACCES;
  cap_answer.store(configured ? CapAnswer::yes : CapAnswer::no, std::memory_order_relaxed);
  return configured;
}

bool Configuration::read(Message& error) {
  if (!read_ceiling(kCeilingFile, ceiling_, error)) return false;
  const char* text = trusted_environment(kLimitVariable);
  if (text == nullptr || asked_.parse(text, error)) return true;
  Message whole;
  whole.format("{}: {}", kLimitVariable, error.view());
  error = whole;
  return false;
}

uint64_t Configuration::cap_for(const DeviceName& device, uint64_t physical) const {
  return std::min(asked_.cap_for(device, physical), ceiling_.cap_for(device, physical));
}

bool Configuration::name_device(const char* device_key, DeviceName& device, Message& error) const {
  device = DeviceName{.key = device_key};
  const char* missing = nullptr;
  // A GPU's own name means each of its MIG instances, where nothing else covers them.
  if (selects_by(Selector::Kind::key) && truth::is_part(device_key) &&
      !truth::whole_of(device_key, device.whole) && cap_for(device, 1) == UINT64_MAX) {
    missing = "GPU";
  }
  if (selects_by(Selector::Kind::index) && !truth::index_of(device_key, device.index)) {
    missing = "index";
  }
  if (selects_by(Selector::Kind::bus_id)) {
    device.has_bus_id = truth::bus_id_of(device_key, device.bus_id);
    if (!device.has_bus_id) missing = "bus id";
  }
  if (missing == nullptr) return true;
  error.format(
      "the limit names devices by {0}, but the {0} of {1} cannot be found out (no NVML?); name it "
      "by its own name",
      missing, device_key);
  return false;
}

std::string_view Configuration::unknown_selector() const {
  const std::string_view unknown = asked_.unknown_selector(truth::device_may_exist);
  return unknown.empty() ? ceiling_.unknown_selector(truth::device_may_exist) : unknown;
}

Process::ForkPage* Process::make_fork_page() {
  constexpr size_t kPage = 4096;
  void* bytes = map_anonymous(kPage);
  if (bytes == nullptr) return nullptr;
  madvise(bytes, kPage, MADV_WIPEONFORK);
  auto* page = static_cast<ForkPage*>(bytes);  // all-zero is the initial state, as after a fork
  ForkPage* expected = nullptr;
  if (fork_page_.compare_exchange_strong(expected, page)) return page;
  munmap(bytes, kPage);
  return expected;
}

Process* Process::make_self() {
  ForkPage* page = fork_page_.load(std::memory_order_acquire);
  if (page == nullptr) page = make_fork_page();
  if (page == nullptr) {
    // No memory for a page: refuse everything rather than let everything pass.
    static ForkPage last_resort;
    page = &last_resort;
  }
  Process* process = page->process.load(std::memory_order_acquire);
  if (process != nullptr) return process;

  Locked<SpinLock> lock(page->making);
  process = page->process.load(std::memory_order_acquire);
  if (process != nullptr) return process;
  void* bytes = map_anonymous(sizeof(Process));
  alignas(Process) static unsigned char last_resort[sizeof(Process)];
  process = new (bytes != nullptr ? bytes : last_resort) Process;
  if (bytes == nullptr) process->fault_.assign("out of host memory");
  page->process.store(process, std::memory_order_release);
  return process;
}

Process::Process() {
  for (auto& row : rows_) row.store(kUnknownRow, std::memory_order_relaxed);
  Message error;
  if (!configuration.read(error)) fail(error);
}

void Process::fail(const Message& why) {
  fault_ = why;
  report(Level::error, "GPU allocations are refused: {}", why.view());
}

bool Process::join() {
  if (joined_.load(std::memory_order_acquire) != 0) return joined_ > 0;
  Locked<SpinLock> lock(joining_);
  if (joined_.load(std::memory_order_acquire) != 0) return joined_ > 0;
  bool ok = fault_.empty();
  TenantName tenant;
  Message error;
  if (ok && !(tenant_name(tenant, error) &&
              ledger.join(tenant.c_str(), ProcessIdentity::of_self(), driver_let_go, error))) {
    fail(error);
    ok = false;
  }
  if (ok) report(Level::info, "joined tenant {} ({})", tenant.view(), ledger.path());
  joined_.store(ok ? 1 : -1, std::memory_order_release);
  return ok;
}

int Process::row_of_device(int slot, const char* device_key, uint64_t physical) {
  if (const int known = cached_row(slot); known != kUnknownRow) return known;
  Locked<SpinLock> lock(registering_);
  if (const int known = cached_row(slot); known != kUnknownRow) return known;
  const int row = register_device(device_key, physical);
  rows_[slot].store(row, std::memory_order_release);
  return row;
}

int Process::register_device(const char* device_key, uint64_t physical) {
  if (!join()) return kFault;
  Message error;
  if (*device_key == '\0') {
    error.assign(
        "nothing tells which device this is: NVIDIA's are known by the UUID that the driver gives "
        "them, AMD's by their gpu_id in /sys/class/kfd, which must be visible here");
    fail(error);
    return kFault;
  }
  DeviceName device;
  if (!configuration.name_device(device_key, device, error)) {
    fail(error);
    return kFault;
  }
  if (uint64_t bytes = 0; truth::physical_bytes(device_key, bytes)) physical = bytes;
  const uint64_t cap = configuration.cap_for(device, physical);
  const int known = ledger.find_device(device_key);
  if (const std::string_view unknown = configuration.unknown_selector(); !unknown.empty()) {
    // With this device capped the typo harms nobody; with it uncapped the typo may be why.
    error.format("the limit names device {}, which this machine does not have", unknown);
    if (cap == UINT64_MAX && known < 0) {
      fail(error);
      return kFault;
    }
    report(Level::warn, "{}", error.view());
  }
  if (cap == UINT64_MAX && known < 0) return kNotCapped;
  const int row = ledger.device(device_key, cap, physical, error);
  if (row < 0) {
    fail(error);
    return kFault;
  }
  const uint64_t in_force = ledger.cap(row) * layout::kUnit;
  if (cap != in_force) {
    report(Level::warn,
           "{}: {} stays capped at {}, as the tenant's running processes have it; this "
           "process was configured for {}",
           ledger.path(), device_key, human_bytes(in_force).view(),
           cap == UINT64_MAX ? "no cap" : human_bytes(cap).view());
  }
  report(Level::info, "{}: cap {} of {}", device_key, human_bytes(in_force).view(),
         human_bytes(physical).view());
  return row;
}

bool Process::view(const char* device_key, uint64_t physical, TenantView& view) {
  return Observation(*this).device(device_key, physical, view);
}

uint64_t Process::tenant_held(int row) {
  constexpr uint64_t kReapInterval_ms = 10;
  const uint64_t held = ledger.held(row);
  // Only what others hold may belong to the dead.
  if (held == ledger.held_by_self(row)) return held * layout::kUnit;
  const uint64_t now = coarse_now_ms();
  uint64_t due = next_reap_ms_.load(std::memory_order_relaxed);
  const bool reaped = now >= due &&
                      next_reap_ms_.compare_exchange_strong(due, now + kReapInterval_ms,
                                                            std::memory_order_relaxed) &&
                      ledger.reap_dead();
  return (reaped ? ledger.held(row) : held) * layout::kUnit;
}

}  // namespace fracgpu
