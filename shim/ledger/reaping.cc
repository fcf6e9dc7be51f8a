// Reaping: how the slots of dead processes are taken back, with what the driver has released of
// them; see ledger.h.
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
using layout::lease_of;
using layout::pack;

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kOrdered = std::memory_order_seq_cst;  // see layout::for_each_live

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
                                              uint64_t (&living)[kMaxDevices]) {
  const layout::Ledger& ledger = *file_.map();
  const layout::Slot& owner = ledger.slots[slot];
  const uint32_t host_pid = owner.host_pid.load(kRelaxed);
  // A slot of orphans: its process is gone, or has freed them.
  if (owner.orphaned.load(kRelaxed) != 0 || release_probe_ == nullptr)
    return DriverRelease::released;
  // A PID that lives in another slot was used again, or its program replaced: what the driver says
  // of it is about the new one, and the old one's descriptors were closed before it came to be.
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
    // What it imported lives as long as the rest of what it has.
    const layout::Cell& cell = ledger.cells[i][slot];
    const uint64_t held_here = held_of(cell.held_and_lease.load(kRelaxed));
    if (held_here == 0 && layout::imported_of(cell.exported_and_imported.load(kRelaxed)) == 0) {
      continue;
    }
    char key[layout::kNameBytes];
    memcpy(key, ledger.devices[i].key, sizeof key);
    key[sizeof key - 1] = '\0';
    if (living[i] == kMaxUnits) living[i] = held(static_cast<int>(i), true);
    const DeadProcess dead{.host_pid = host_pid,
                           .pid = owner.pid,
                           .pid_namespace = owner.pid_namespace,
                           .start_time = owner.start_time,
                           .held = held_here,
                           .held_by_living = living[i]};
    const DriverRelease answer = release_probe_(dead, key);
    // All devices are asked, so that they are waited for at the same time.
    is_awaited = is_awaited || answer == DriverRelease::awaited;
    if (answer == DriverRelease::unknown && driver_reports_[i].load(kRelaxed))
      return DriverRelease::held;
    if (answer == DriverRelease::held || answer == DriverRelease::released)
      driver_reports_[i].store(true, kRelaxed);
    if (answer == DriverRelease::held) return answer;
  }
  return is_awaited ? DriverRelease::awaited : DriverRelease::released;
}

// What of the tenant's imports is not of this slot's exports: the imports of its own process, if
// that lives, and what another slot of that process is charged for.
uint64_t Ledger::imported_beside(uint32_t slot, int device, int fd) const {
  const layout::Ledger& ledger = *file_.map();
  const layout::Slot& exporter = ledger.slots[slot];
  uint64_t sum = 0;
  for_each_live(ledger, [&](uint32_t other) {
    if (other == slot || !is_same_process(ledger.slots[other], exporter)) return;
    const layout::Cell& cell = ledger.cells[device][other];
    const bool is_living = exporter.orphaned.load(kRelaxed) == layout::kOrphanedByLiving + other &&
                           LedgerFile::slot_is_alive(fd, other);
    if (is_living) sum += layout::imported_of(cell.exported_and_imported.load(kRelaxed));
    if (other < slot && ledger.slots[other].orphaned.load(kRelaxed) != 0)
      sum += held_of(cell.held_and_lease.load(kRelaxed));
  });
  return sum;
}

// Lowers what a slot is charged for to what its process exported and others have imported.
// `imported`: by all processes. False when nothing remains charged.
bool Ledger::orphan_exports(uint32_t slot, const uint64_t (&imported)[kMaxDevices], int fd,
                            bool& freed) {
  layout::Ledger& ledger = *file_.map();
  bool any = false;
  layout::for_each_device(ledger, [&](uint32_t device) {
    layout::Cell& cell = ledger.cells[device][slot];
    auto& word = cell.held_and_lease;
    const uint64_t held = held_of(word.load(kRelaxed));
    const uint64_t exported = layout::exported_of(cell.exported_and_imported.load(kRelaxed));
    const uint64_t importable =
        imported[device] -
        std::min(imported[device], imported_beside(slot, static_cast<int>(device), fd));
    const uint64_t kept = std::min({held, exported, importable, kMaxUnits});
    freed = freed || kept < held || lease_of(word.load(kRelaxed)) > kept;
    any = any || kept > 0;
    word.store(pack(kept, kept), kRelaxed);
    cell.exported_and_imported.store(pack(kept, 0), kRelaxed);
    cell.overhead.store(0, kRelaxed);
    cell.time_and_allocations.store(0, kRelaxed);
    cell.parked.store(0, kRelaxed);
  });
  auto& orphaned = ledger.slots[slot].orphaned;
  if (any == (orphaned.load(kRelaxed) == 0)) orphaned.store(any ? 1 : 0, kRelaxed);
  return any;
}

uint64_t Ledger::orphaned(int device) const {
  const layout::Ledger& ledger = *file_.map();
  Message ignored;
  const int fd = file_.reopen(ignored);
  uint64_t sum = 0;
  for_each_live(ledger, [&](uint32_t slot) {
    const layout::Cell& cell = ledger.cells[device][slot];
    const uint64_t exported = layout::exported_of(cell.exported_and_imported.load(kRelaxed));
    if (exported == 0) return;
    const bool is_orphaned = ledger.slots[slot].orphaned.load(kRelaxed) != 0;
    if (is_orphaned || (fd >= 0 && !LedgerFile::slot_is_alive(fd, slot)))
      sum += std::min(exported, layout::held_now(cell));
  });
  if (fd >= 0) close_own(fd);
  return sum;
}

// Charges in the slot of orphans as much of `most` as others have imported: `kept`.
bool Ledger::charge_orphans(int device, uint64_t most, uint64_t& kept) {
  if (most == 0 || imported_by_others(device) == 0) return true;
  const GrowLock lock(file_, lock_timeout());
  note(lock);
  Message ignored;
  if (!lock || !keep_slot(lock, ignored)) return false;
  const LeaseScope scope(*file_.map(), lock, device);
  const int slot = orphan_slot(lock);
  if (slot < 0) return false;
  layout::Cell& orphans = file_.map()->cells[device][slot];
  const uint64_t imported = imported_by_others(device);
  const uint64_t known = held_of(orphans.held_and_lease.load(kRelaxed));
  const uint64_t more = std::min(most, imported - std::min(imported, known));
  orphans.exported_and_imported.fetch_add(pack(more, 0), kRelaxed);
  orphans.held_and_lease.fetch_add(pack(more, 0), kOrdered);
  kept = more;
  return true;
}

// The orphans are charged before the own charge goes: a process that dies in between leaves too
// much counted, never too little. The lease for them goes with it.
bool Ledger::free_exported(int device, uint64_t units, uint64_t orphans) {
  uint64_t kept = 0;
  if (!charge_orphans(device, orphans, kept)) return false;
  auto& own = own_cell(device).held_and_lease;
  uint64_t word = own.load(kRelaxed);
  while (!own.compare_exchange_weak(word, word - pack(units, std::min(lease_of(word), kept)),
                                    kRelaxed)) {
  }
  drop_exported(device, units);
  return true;
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
    // By name: a child forked meanwhile shares the description and would keep the lock.
    lock.l_type = F_UNLCK;
    fcntl(fd, F_OFD_SETLK, &lock);
  }
  close_own(fd);
  return mine;
}

bool Ledger::reap_dead(int fd) {
  layout::Ledger& ledger = *file_.map();
  uint32_t gone[kMaxSlots] = {};  // whose slot it is, where that process is gone
  uint64_t living[kMaxDevices];
  std::fill(std::begin(living), std::end(living), kMaxUnits);
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
  // Somebody else may have reaped the slot meanwhile, and a new process claimed it and died too.
  const auto is_gone = [&](uint32_t slot) {
    return gone[slot] == owner_of(ledger.slots[slot]) &&
           !LedgerFile::slot_is_alive(lock.fd(), slot);
  };
  uint64_t imported[kMaxDevices] = {};
  for_each_live(ledger, [&](uint32_t slot) {
    if (is_gone(slot)) return;
    layout::for_each_device(ledger, [&](uint32_t device) {
      imported[device] += layout::most_imported(ledger, static_cast<int>(device), slot);
    });
  });
  bool freed = false;
  for_each_live(ledger, [&](uint32_t slot) {
    if (!is_gone(slot)) return;
    if (orphan_exports(slot, imported, lock.fd(), freed)) return;
    wipe_slot(slot);
    unmark(ledger, slot);
    freed = true;
  });
  note_slots_used();
  return freed;
}

}  // namespace fracgpu
