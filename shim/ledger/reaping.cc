// Reaping: takes back the slots of dead processes whose memory the driver has released; see
// ledger.h.
//
// A slot's cells are zeroed before it is unmarked: a process that dies in between leaves too much
// counted, never too little.
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "shim/base/byte_lock.h"
#include "shim/base/descriptor.h"
#include "shim/ledger/invariants.h"
#include "shim/ledger/ledger.h"

namespace fracgpu {
namespace {

using layout::for_each_live;
using layout::held_of;
using layout::kMaxDevices;
using layout::kMaxSlots;
using layout::kMaxUnits;

constexpr auto kRelaxed = std::memory_order_relaxed;

void unmark(layout::Ledger& ledger, uint32_t slot) {
  const uint64_t bit = uint64_t{1} << (slot % 64);
  ledger.live[slot / 64].fetch_and(~bit, std::memory_order_release);
  ledger.unclaimed[slot / 64].fetch_or(bit, std::memory_order_release);
}

}  // namespace

uint32_t Ledger::owner_of(const layout::Slot& slot) {
  return (slot.pid ^ static_cast<uint32_t>(slot.start_time)) << 1 | 1;
}

Ledger::DriverRelease Ledger::driver_released(int fd, uint32_t slot,
                                              Living (&living)[kMaxDevices]) {
  const layout::Ledger& ledger = *file_.map();
  const layout::Slot& owner = ledger.slots[slot];
  const uint32_t host_pid = owner.host_pid.load(kRelaxed);
  // The driver reports nothing about orphans: their exporter is dead, or has freed them.
  if (owner.orphaned.load(kRelaxed) != 0 || release_probe_ == nullptr)
    return DriverRelease::released;
  // If another slot's living process has this PID, the PID was used again or the process has
  // replaced its program. The driver then reports the new one's memory, and the kernel closed the
  // old one's descriptors before the new one started.
  bool is_replaced = false;
  for_each_live(ledger, [&](uint32_t other) {
    is_replaced = is_replaced || (other != slot && host_pid != 0 &&
                                  ledger.slots[other].host_pid.load(kRelaxed) == host_pid &&
                                  LedgerFile::slot_is_alive(fd, other));
  });
  if (is_replaced) return DriverRelease::released;
  bool is_awaited = false;
  for (uint32_t i = 0; i < kMaxDevices; ++i) {
    if (!layout::is_used(ledger.devices[i])) continue;
    // Imported memory lives as long as the rest of the process's memory.
    const layout::Cell& cell = ledger.cells[i][slot];
    const uint64_t held_here = held_of(cell.held_and_lease.load(kRelaxed));
    const uint64_t imported = layout::imported_by(ledger, static_cast<int>(i), slot);
    if (held_here == 0 && imported == 0) continue;
    const uint64_t in_use = exports_of_dead_in_use(static_cast<int>(i), slot, fd);
    char key[layout::kNameBytes];
    memcpy(key, ledger.devices[i].key, sizeof key);
    key[sizeof key - 1] = '\0';
    if (living[i].held == kMaxUnits) living[i] = count_living(static_cast<int>(i));
    const DeadProcess dead{.host_pid = host_pid,
                           .pid = owner.pid,
                           .pid_namespace = owner.pid_namespace,
                           .start_time = owner.start_time,
                           .held = held_here - std::min(held_here, in_use),
                           .imported = imported,
                           .held_by_living = living[i].held,
                           .uncounted_of_living = living[i].uncounted};
    const DriverRelease answer = release_probe_(dead, key);
    // Asks about all devices, so that their waits overlap.
    is_awaited = is_awaited || answer == DriverRelease::awaited;
    if (answer == DriverRelease::unknown && driver_reports_[i].load(kRelaxed))
      return DriverRelease::held;
    if (answer == DriverRelease::held || answer == DriverRelease::released)
      driver_reports_[i].store(true, kRelaxed);
    if (answer == DriverRelease::held) return answer;
  }
  return is_awaited ? DriverRelease::awaited : DriverRelease::released;
}

bool Ledger::reap_dead() {
  Message ignored;
  const int fd = file_.reopen(ignored);
  if (fd < 0) return false;
  const bool freed = reap_dead(fd);
  close_own(fd);
  return freed;
}

bool Ledger::reap_dead_for_all_who_join() {
  Message ignored;
  const int fd = file_.reopen(ignored);
  if (fd < 0) return false;
  struct flock lock = byte_lock(F_WRLCK, layout::kReapLock);
  const bool mine = fcntl(fd, F_OFD_SETLK, &lock) == 0;
  if (mine) {
    reap_dead(fd);
    // An explicit unlock: a child forked meanwhile shares the description and would keep the lock.
    lock.l_type = F_UNLCK;
    fcntl(fd, F_OFD_SETLK, &lock);
  }
  close_own(fd);
  return mine;
}

bool Ledger::reap_dead(int fd) {
  layout::Ledger& ledger = *file_.map();
  uint32_t gone[kMaxSlots] = {};  // owner of each slot whose process is gone; otherwise 0
  Living living[kMaxDevices];
  bool any = false, awaited = false;
  // First without the lock, because asking the driver takes long.
  for_each_live(ledger, [&](uint32_t slot) {
    const uint32_t owner = owner_of(ledger.slots[slot]);
    if (LedgerFile::slot_is_alive(fd, slot)) return;
    const DriverRelease answer = driver_released(fd, slot, living);
    awaited = awaited || answer == DriverRelease::awaited;
    if (answer != DriverRelease::released) return;
    gone[slot] = owner;
    any = true;
  });
  awaits_dead_.store(awaited, kRelaxed);
  if (!any) return false;

  GrowLock lock(file_);
  if (!lock) return false;
  const LeaseScope scope(ledger, lock, LeaseScope::kEveryDevice);
  // Another process may have reaped the slot meanwhile. A new process may then have claimed it and
  // died.
  for_each_live(ledger, [&](uint32_t slot) {
    if (gone[slot] != owner_of(ledger.slots[slot]) || LedgerFile::slot_is_alive(lock.fd(), slot))
      gone[slot] = 0;
  });
  bool freed = false;
  for_each_live(ledger, [&](uint32_t slot) {
    const bool are_orphans = ledger.slots[slot].orphaned.load(kRelaxed) != 0;
    if (gone[slot] != 0 && !are_orphans) freed = keep_exports(slot, gone) || freed;
  });
  forget_released_orphans(gone);
  layout::for_each_device(ledger, [&](uint32_t device) {
    freed = lower_orphans(static_cast<int>(device), gone) || freed;
  });
  for_each_live(ledger, [&](uint32_t slot) {
    if (gone[slot] == 0 || has_orphans(slot)) return;
    wipe_slot(slot);
    unmark(ledger, slot);
    freed = true;
  });
  note_slots_used();
  return freed;
}

}  // namespace fracgpu
