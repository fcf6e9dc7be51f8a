// Asks about dead processes, and waits for those that no list shows; see memory_of_the_dead.h.
#include "shim/process/memory_of_the_dead.h"

#include <algorithm>
#include <string_view>

#include "shim/base/clock.h"
#include "shim/base/fnv.h"
#include "shim/base/no_cancellation.h"
#include "shim/base/static_spin_lock.h"
#include "shim/config/identity.h"
#include "shim/vendor/backend.h"

namespace fracgpu {
namespace {

using Release = Ledger::DriverRelease;

// How long to wait for a process that no list shows, unless the driver's own counts of living
// processes show that its memory is free. Living processes may be charged for memory that they do
// not have, and this difference may hide the dead process's memory. After this time, the kernel's
// worker has finished its part of a process's end. In storms whose memory came back after 100 ms,
// the cap held with 0 to 400, by the device's usage. The larger the value, the longer a program
// waits behind another one that had all memory.
constexpr uint64_t kLeast_ms = 200;
// The longest wait while the device's usage does not fall: other tenants may have taken what was
// freed, or may have held as much all along. Memory that comes back later may exceed the cap. If
// the kernel never gives memory back, calls are refused for so long (1.2 s with 1,000, 5.2 s with
// 5,000).
constexpr uint64_t kMost_ms = 1000;
// The kernel itself may still use this fraction of a dead process's memory when all of it is free.
// Storms show no difference between a half, an eighth and a 64th. Page tables of 2 MiB pages are
// less than a hundredth. With a larger fraction, a large process's last piece would count as free
// too early.
constexpr uint64_t kRest = 8;  // an eighth
// An entry that was not queried for so long belongs to an earlier process.
constexpr uint64_t kForget_ms = 60'000;

// A dead process whose memory on a device is awaited.
struct Awaited {
  uint64_t who = 0;       // 0: free
  uint64_t seen_ms = 0;   // first
  uint64_t asked_ms = 0;  // last
  uint64_t fell_ms = 0;   // when `least` fell last
  uint64_t least = 0;     // lowest bound of what dead processes had, in bytes
  bool is_over = false;
};
// Dead processes times devices, at one moment. A process without an entry counts as holding its
// memory until one is free.
constexpr int kMostAwaited = 256;
constinit Awaited awaited[kMostAwaited];
constinit StaticSpinLock awaiting;

uint64_t name_of(const DeadProcess& dead, const char* device_key) {
  Fnv1a hash;
  hash.mix(std::string_view(device_key));
  hash.mix(uint64_t{dead.pid}).mix(dead.pid_namespace).mix(dead.start_time);
  return hash.value() | 1;
}

// The most that dead processes still have on the device, in bytes. Includes memory that no process
// has and, in a private PID namespace, memory of other tenants. UINT64_MAX if not known.
struct MostHeld {
  uint64_t by_driver = UINT64_MAX;  // from the driver's counts of living processes alone
  uint64_t by_all = UINT64_MAX;     // from the ledger's counts of living processes, too
};

MostHeld most_held(const DeadProcess& dead, const char* device_key) {
  const VendorBackend& backend = backend_of(device_key);
  const auto less = [](uint64_t bytes, uint64_t units) {
    return bytes - std::min(bytes, units * layout::kUnit);
  };
  uint64_t all = 0, counted = 0;
  const uint64_t most =
      backend.usage_of_all(device_key, all) ? less(all, dead.held_by_living) : UINT64_MAX;
  if (!backend.most_held_by_dead(device_key, counted)) return {.by_all = most};
  // The driver's counts of living processes leave out memory that is overhead in the ledger
  // (Overhead::uncounted), but not all overhead, and memory whose exporter is gone. The ledger's
  // sum may include memory that is not on the device.
  return {counted, std::min(counted, std::max(most, less(counted, dead.uncounted_of_living)))};
}

// The process's entry, perhaps a fresh one; null if none is free.
Awaited* entry_of(uint64_t who, uint64_t now) {
  Awaited* free = nullptr;
  for (Awaited& each : awaited) {
    const bool is_old = now - each.asked_ms > kForget_ms;
    if (each.who == who && !is_old) return &each;
    if (free == nullptr && (each.who == 0 || is_old || each.is_over)) free = &each;
  }
  if (free != nullptr) *free = {.who = who, .seen_ms = now, .fell_ms = now, .least = UINT64_MAX};
  return free;
}

// Whether a process that no list shows must be assumed to hold its memory. `is_closed`: the kernel
// has closed the process's descriptors, after which the driver frees the memory.
bool may_hold(const DeadProcess& dead, const char* device_key, bool is_closed) {
  const auto [by_driver, most] = most_held(dead, device_key);
  const uint64_t had = dead.held != 0 ? dead.held : dead.imported;
  const uint64_t now = coarse_now_ms(), rest = had * layout::kUnit / kRest;
  const Locked<StaticSpinLock> lock(awaiting);
  Awaited* const entry = entry_of(name_of(dead, device_key), now);
  if (entry == nullptr) return true;  // until one is free
  entry->asked_ms = now;
  // The kernel frees the memory piece by piece.
  if (most < entry->least) {
    entry->least = most;
    entry->fell_ms = now;
  }
  const bool shown_free = most < rest;
  const bool unknown = most == UINT64_MAX || dead.held == 0;
  const bool waited = now - entry->seen_ms >= kLeast_ms;
  const bool stands = now - entry->fell_ms >= kMost_ms;
  entry->is_over = entry->is_over || by_driver < rest ||
                   (is_closed ? shown_free || waited : waited && (shown_free || unknown || stands));
  return !entry->is_over;
}

}  // namespace

Release driver_released(const DeadProcess& dead, const char* device_key) {
  const NoCancellation scope;  // a descriptor of the ledger is open
  const Ending ending = ending_of(dead.pid, dead.pid_namespace, dead.start_time);
  if (ending == Ending::under_way) return Release::awaited;
  const VendorBackend& backend = backend_of(device_key);
  const bool is_named = dead.host_pid != 0 && in_host_pid_namespace();
  // The driver reports the new owner's memory for a PID that is used again.
  const uint64_t now = is_named ? start_time_on_host(dead.host_pid) : 0;
  if (now != 0 && dead.start_time != 0 && now != dead.start_time) return Release::pid_reused;
  // A driver's first answer may fail; a second failure is taken to be permanent.
  uint64_t bytes = 0;
  const auto ask = [&] { return backend.usage_of(dead.host_pid, device_key, bytes); };
  bool is_told = is_named && ask();
  if (is_named && !is_told) is_told = ask();
  if (is_told && bytes > 0) {
    // The list still shows the process, but its memory is already free.
    uint64_t most = 0;
    const bool is_late = backend.most_held_by_dead(device_key, most) && most < bytes;
    if (!is_late) return Release::held;
  }
  if (!backend.frees_after_the_end) {
    if (is_told) return Release::released;
    if (is_named) return Release::unknown;
  }
  const bool is_closed = ending == Ending::done && !backend.frees_after_the_end;
  return may_hold(dead, device_key, is_closed) ? Release::awaited : Release::released;
}

}  // namespace fracgpu
