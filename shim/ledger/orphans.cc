// Orphans: memory that its exporter has freed, or has died with, and that others have imported; see
// ledger.h.
//
// They are charged in slots of their own, which no process holds, so that any process may lower the
// charge to what is still imported. reaping.cc does that whenever it looks for dead processes.
#include <algorithm>

#include "shim/base/descriptor.h"
#include "shim/ledger/invariants.h"
#include "shim/ledger/ledger.h"

namespace fracgpu {
namespace {

using layout::for_each_live;
using layout::held_of;
using layout::kMaxSlots;
using layout::kMaxUnits;
using layout::lease_of;
using layout::pack;

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kOrdered = std::memory_order_seq_cst;  // see layout::for_each_live

}  // namespace

int Ledger::orphan_slot(const GrowLock& lock) {
  layout::Ledger& ledger = *file_.map();
  const layout::Slot& self = ledger.slots[slot_];
  const uint32_t orphaned = layout::kOrphanedByLiving + slot_;
  int known = -1;
  for_each_live(ledger, [&](uint32_t slot) {
    const layout::Slot& owner = ledger.slots[slot];
    if (owner.orphaned.load(kRelaxed) == orphaned && is_same_process(owner, self))
      known = static_cast<int>(slot);
  });
  if (known >= 0) return known;
  Message ignored;
  const int slot = find_free_slot(lock, ignored);
  if (slot >= 0) enter_slot(static_cast<uint32_t>(slot), ProcessIdentity::of_slot(self), orphaned);
  return slot;
}

// The most that others have imported of what the slot's process exported: nothing that this process
// has imported itself, if it lives, and nothing that another slot of its orphans is charged for.
// Each slot is read once, since imports come and go meanwhile. `gone`: not 0 for the dead.
uint64_t Ledger::imported_of(uint32_t slot, int device, const uint32_t (&gone)[kMaxSlots],
                             int fd) const {
  const layout::Ledger& ledger = *file_.map();
  const layout::Slot& exporter = ledger.slots[slot];
  uint64_t imported = 0, beside = 0;
  for_each_live(ledger, [&](uint32_t other) {
    const layout::Slot& owner = ledger.slots[other];
    const bool is_same = other != slot && is_same_process(owner, exporter);
    if (is_same && other < slot && owner.orphaned.load(kRelaxed) != 0)
      beside += held_of(ledger.cells[device][other].held_and_lease.load(kRelaxed));
    const bool is_own = is_same &&
                        exporter.orphaned.load(kRelaxed) == layout::kOrphanedByLiving + other &&
                        LedgerFile::slot_is_alive(fd, other);
    if (gone[other] == 0 && !is_own) imported += layout::most_imported(ledger, device, other);
  });
  return imported - std::min(imported, beside);
}

// Lowers what a slot is charged for to what its process exported and others have imported. False
// when nothing remains charged.
bool Ledger::orphan_exports(uint32_t slot, const uint32_t (&gone)[kMaxSlots], int fd, bool& freed) {
  layout::Ledger& ledger = *file_.map();
  bool any = false;
  layout::for_each_device(ledger, [&](uint32_t device) {
    layout::Cell& cell = ledger.cells[device][slot];
    auto& word = cell.held_and_lease;
    const uint64_t held = held_of(word.load(kRelaxed));
    const uint64_t exported = layout::exported_of(cell.exported_and_imported.load(kRelaxed));
    const uint64_t imported =
        held > 0 && exported > 0 ? imported_of(slot, static_cast<int>(device), gone, fd) : 0;
    const uint64_t kept = std::min({held, exported, imported, kMaxUnits});
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

}  // namespace fracgpu
