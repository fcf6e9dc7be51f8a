// Joining: how a process gets its slot in the ledger, and how slots are found; see ledger.h.
// reaping.cc takes back the slots of dead processes.
//
// A slot is locked before it is marked live: a process that dies in between leaves too much
// counted, never too little.
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "shim/base/clock.h"
#include "shim/base/descriptor.h"
#include "shim/ledger/invariants.h"
#include "shim/ledger/ledger.h"

namespace fracgpu {
namespace {

using layout::for_each_live;
using layout::kMaxSlots;

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kOrdered = std::memory_order_seq_cst;  // see layout::for_each_live

// How often a joining process begins again if the file was removed meanwhile. Of 800 processes that
// joined while `fracgpu gc` ran in a loop, 39 began again, none more than once.
constexpr int kJoinAttempts = 16;

bool is_marked(const layout::Ledger& ledger, uint32_t slot) {
  return (layout::claimed_slots(ledger, slot / 64, kRelaxed) >> (slot % 64) & 1) != 0;
}

void mark(layout::Ledger& ledger, uint32_t slot) {
  const uint64_t bit = uint64_t{1} << (slot % 64);
  ledger.unclaimed[slot / 64].fetch_and(~bit, kOrdered);
  ledger.live[slot / 64].fetch_or(bit, kOrdered);
}

}  // namespace

ProcessIdentity ProcessIdentity::of_slot(const layout::Slot& slot) {
  ProcessIdentity owner{.host_pid = slot.host_pid.load(kRelaxed),
                        .pid = slot.pid,
                        .pid_namespace = slot.pid_namespace,
                        .start_time = slot.start_time,
                        .uid = slot.uid};
  memcpy(owner.command, slot.command, sizeof owner.command);
  return owner;
}

template <typename Open>
bool Ledger::join_opened(const ProcessIdentity& self, Message& error, Open open) {
  for (auto& reports : driver_reports_) reports.store(false, kRelaxed);  // set by an earlier ledger
  for (int attempt = 0;; ++attempt) {
    if (open() != LedgerFile::Result::ok) return false;
    const bool reaped = reap_dead_for_all_who_join();
    if (claim_slot(self, error)) return true;
    // All slots may belong to dead processes.
    if (!reaped && reap_dead() && claim_slot(self, error)) return true;
    // Another process may remove a file without living processes until this one has a slot.
    const bool removed = !file_.is_current();
    file_.close();
    if (!removed || attempt == kJoinAttempts) return false;
  }
}

bool Ledger::join(const char* tenant, const ProcessIdentity& self, ReleaseProbe release_probe,
                  Message& error) {
  release_probe_ = release_probe;
  return join_opened(self, error, [&] { return file_.open_or_create(tenant, error); });
}

bool Ledger::join_as_foreign_importer(const char* tenant, const Ledger& own, Message& error) {
  ProcessIdentity self = ProcessIdentity::of_slot(own.file_.map()->slots[own.slot_]);
  self.is_foreign_importer = true;
  release_probe_ = own.release_probe_;
  return join_opened(self, error,
                     [&] { return file_.open_existing(tenant, LedgerFile::Access::write, error); });
}

LedgerFile::Result Ledger::observe(const char* tenant, Message& error) {
  return file_.open_existing(tenant, LedgerFile::Access::read, error);
}

LedgerFile::Result Ledger::manage(const char* tenant, Message& error) {
  return file_.open_existing(tenant, LedgerFile::Access::write, error);
}

bool Ledger::claim_slot(const ProcessIdentity& self, Message& error) {
  layout::Ledger& ledger = *file_.map();
  GrowLock lock(file_);
  if (!lock) {
    error = lock.error();
    return false;
  }
  const LeaseScope scope(ledger, lock, LeaseScope::kEveryDevice);
  bool alone = true, only_dead = !self.is_foreign_importer;
  for_each_live(ledger, [&](uint32_t slot) {
    alone = false;
    only_dead = only_dead && !LedgerFile::slot_is_alive(lock.fd(), slot);
  });
  if (alone && !file_.is_made()) {
    // No living process depends on the file's content, so none of it is trusted. The memory of
    // further slots and of devices is zeroed before it is used again.
    memset(static_cast<void*>(ledger.devices), 0, sizeof ledger.devices);
    memset(static_cast<void*>(ledger.slots), 0, layout::kSlotsPerPage * sizeof(layout::Slot));
    memset(static_cast<void*>(ledger.handles), 0, sizeof ledger.handles);
    memset(static_cast<void*>(ledger.exports), 0, sizeof ledger.exports);
    memset(static_cast<void*>(ledger.refusals), 0, sizeof ledger.refusals);
    for (auto& left : ledger.cap_is_left) left.store(0, kRelaxed);
    ledger.any_parked.store(0, kRelaxed);
    ledger.slots_backed.store(layout::encode(layout::kSlotsPerPage), kOrdered);
  } else if (only_dead) {
    // No living process depends on the caps that dead processes were given.
    layout::for_each_device(ledger, [&](uint32_t device) {
      ledger.cap_is_left[device / 64].fetch_or(uint64_t{1} << (device % 64), kRelaxed);
    });
  }
  const int free = find_free_slot(lock, error);
  if (free < 0) return false;
  const auto slot = static_cast<uint32_t>(free);
  if (!file_.lock_slot_for_life(slot, error)) return false;
  enter_slot(slot, self, 0);
  slot_ = slot;
  owner_ = owner_of(ledger.slots[slot]);
  mark_ = layout::mark_of(ledger.slots[slot], slot);
  return true;
}

void Ledger::enter_slot(uint32_t slot, const ProcessIdentity& self, uint32_t orphaned) {
  wipe_slot(slot);
  layout::Slot& owner = file_.map()->slots[slot];
  owner.host_pid.store(self.host_pid, kRelaxed);
  owner.pid = self.pid;
  owner.pid_namespace = self.pid_namespace;
  owner.start_time = self.start_time;
  owner.uid = self.uid;
  owner.claimed_unix_s = unix_now_ms() / 1000;
  memcpy(owner.command, self.command, sizeof owner.command);
  owner.foreign_importer = self.is_foreign_importer ? 1 : 0;
  owner.orphaned.store(orphaned, kRelaxed);
  mark(*file_.map(), slot);
  note_slots_used();
}

int Ledger::find_free_slot(const GrowLock& lock, Message& error) {
  for (uint32_t slot = 0; slot < kMaxSlots; ++slot) {
    if (is_marked(*file_.map(), slot) || LedgerFile::slot_is_alive(lock.fd(), slot)) continue;
    return back_slots(slot, lock, error) ? static_cast<int>(slot) : -1;
  }
  error.format("the ledger {} has no free slot: {} processes of the tenant use a GPU at once",
               file_.path(), kMaxSlots);
  return -1;
}

bool Ledger::keep_slot(const GrowLock& lock, Message& error) {
  const layout::Ledger& ledger = *file_.map();
  if (is_marked(ledger, slot_) && owner_of(ledger.slots[slot_]) == owner_) {
    return LedgerFile::slot_is_alive(lock.fd(), slot_) || file_.lock_slot_for_life(slot_, error);
  }
  error.format(
      "this process was restored from a checkpoint, and its place in the ledger {} was given away "
      "meanwhile: what it holds is not counted; restart it",
      file_.path());
  return false;
}

// With the lock held, before a slot is claimed: gives memory to its page of slots and to their
// cells, if they have none yet. A process that dies in between leaves memory that is not used.
bool Ledger::back_slots(uint32_t slot, const GrowLock& lock, Message& error) {
  layout::Ledger& ledger = *file_.map();
  constexpr uint32_t kCount = layout::kSlotsPerPage;
  const uint64_t backed = layout::decode(ledger.slots_backed.load(kRelaxed));
  if (slot < backed && backed <= kMaxSlots) return true;
  if (slot != backed) {
    describe_damage(error);
    return false;
  }
  if (!file_.back(lock.fd(), ledger.slots + slot, kCount * sizeof(layout::Slot), error))
    return false;
  memset(static_cast<void*>(ledger.slots + slot), 0, kCount * sizeof(layout::Slot));
  bool all = true;
  layout::for_each_device(ledger, [&](uint32_t device) {
    layout::Cell* const cells = ledger.cells[device] + slot;
    all = all && file_.back(lock.fd(), cells, kCount * sizeof *cells, error);
    if (all) memset(static_cast<void*>(cells), 0, kCount * sizeof *cells);
  });
  if (all) ledger.slots_backed.store(layout::encode(slot + kCount), kOrdered);
  return all;
}

// The same for a device, before its row is used: for the cells of all slots that have memory.
bool Ledger::back_device(uint32_t device, const GrowLock& lock, Message& error) {
  layout::Ledger& ledger = *file_.map();
  const uint64_t backed = layout::decode(ledger.slots_backed.load(kRelaxed));
  if (backed > kMaxSlots) {
    describe_damage(error);
    return false;
  }
  layout::Cell* const cells = ledger.cells[device];
  if (!file_.back(lock.fd(), cells, backed * sizeof *cells, error)) return false;
  memset(static_cast<void*>(cells), 0, backed * sizeof *cells);
  return true;
}

// With the lock held, whenever a slot was marked or unmarked. If a process dies in between, the
// number misses a slot that holds nothing yet, or includes one that no longer holds anything.
void Ledger::note_slots_used() {
  layout::Ledger& ledger = *file_.map();
  uint32_t used = 0;
  for_each_live(ledger, [&](uint32_t slot) { used = slot + 1; });
  ledger.slots_used.store(layout::encode(used), std::memory_order_release);
}

void Ledger::wipe_slot(uint32_t slot) {
  layout::Ledger& ledger = *file_.map();
  layout::for_each_device(ledger, [&](uint32_t device) {
    layout::Cell& cell = ledger.cells[device][slot];
    cell.held_and_lease.store(0, kRelaxed);
    cell.peak.store(0, kRelaxed);
    cell.overhead.store(0, kRelaxed);
    cell.exported_and_imported.store(0, kRelaxed);
    cell.time_and_allocations.store(0, kRelaxed);
    cell.parked.store(0, kRelaxed);
    cell.unknown_imports.store(0, kRelaxed);
  });
  ledger.slots[slot].orphaned.store(0, kRelaxed);
  ledger.slots[slot].importing.store(0, kRelaxed);
  for (auto& word : ledger.slots[slot].imports) word.store(0, kRelaxed);
}

bool Ledger::any_alive() const {
  Message ignored;
  const int fd = file_.reopen(ignored);
  if (fd < 0) return false;
  bool alive = false;
  for_each_live(*file_.map(),
                [&](uint32_t slot) { alive = alive || LedgerFile::slot_is_alive(fd, slot); });
  close_own(fd);
  return alive;
}

int Ledger::find_process(const ProcessName& name) const {
  const layout::Ledger& ledger = *file_.map();
  Message ignored;
  const int fd = file_.reopen(ignored);
  if (fd < 0) return -1;
  int found = -1;
  for_each_live(ledger, [&](uint32_t number) {
    const layout::Slot& slot = ledger.slots[number];
    const bool by_host_pid = name.host_pid != 0 && slot.host_pid.load(kRelaxed) == name.host_pid;
    const bool by_pid =
        name.pid != 0 && slot.pid == name.pid && slot.pid_namespace == name.pid_namespace;
    if (found >= 0 || slot.foreign_importer != 0 || !(by_host_pid || by_pid)) return;
    // Another process may have a dead process's PID by now.
    if (LedgerFile::slot_is_alive(fd, number)) found = static_cast<int>(number);
  });
  close_own(fd);
  return found;
}

}  // namespace fracgpu
