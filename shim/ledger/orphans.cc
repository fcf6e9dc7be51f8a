// Orphans: memory that other processes have imported, and that its exporter has freed or has died
// with; see ledger.h.
//
// They are charged in slots that no process owns, so any process may lower the charge to what can
// still be imported. reaping.cc does that whenever it looks for dead processes.
//
// Of listed exports it is known which processes have imported them; see exports.cc. Of others only
// sums are known. There the exported half of each orphan slot's word is an upper bound for its
// exporter, and the charge is one sum for all exporters; its distribution over the slots has no
// meaning. The sum is bounded by the maximum flow from importers to exporters, where no process
// imports its own exports. By max-flow min-cut that is the minimum of: all imports; all exports;
// and, for each process, the imports of all other processes plus the exports of all other
// processes.
#include <algorithm>

#include "shim/base/descriptor.h"
#include "shim/ledger/invariants.h"
#include "shim/ledger/ledger.h"

namespace fracgpu {
namespace {

using layout::for_each_live;
using layout::held_of;
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

// Reads each slot once, because imports change meanwhile. `gone`: as in `lower_orphans`, or null.
uint64_t Ledger::imported_beside(int exporter, int device, const uint32_t* gone) const {
  const layout::Ledger& ledger = *file_.map();
  uint64_t sum = 0;
  for_each_live(ledger, [&](uint32_t slot) {
    const bool counts =
        ledger.slots[slot].orphaned.load(kRelaxed) == 0 && (gone == nullptr || gone[slot] == 0);
    if (counts && static_cast<int>(slot) != exporter)
      sum += layout::most_imported(ledger, device, slot);
  });
  return sum;
}

uint64_t Ledger::imported_by_others(int device) const {
  return imported_beside(static_cast<int>(slot_), device, nullptr);
}

// The own slot of the living process whose orphans these are, or -1 if there is none.
int Ledger::exporter_of(uint32_t orphans) const {
  const layout::Ledger& ledger = *file_.map();
  const uint32_t orphaned = ledger.slots[orphans].orphaned.load(kRelaxed);
  if (orphaned < layout::kOrphanedByLiving) return -1;
  const uint32_t slot = orphaned - layout::kOrphanedByLiving;
  const bool is_its = slot < layout::slots_backed(ledger) &&
                      ledger.slots[slot].orphaned.load(kRelaxed) == 0 &&
                      is_same_process(ledger.slots[orphans], ledger.slots[slot]);
  return is_its ? static_cast<int>(slot) : -1;
}

// The upper bound of the sum that is charged; see above.
uint64_t Ledger::most_orphans(int device, const uint32_t* gone) const {
  const layout::Ledger& ledger = *file_.map();
  uint64_t imported = 0, exported = 0, most_of_one = 0;
  for_each_live(ledger, [&](uint32_t slot) {
    if (ledger.slots[slot].orphaned.load(kRelaxed) != 0) {
      exported += exported_in(device, slot);
    } else if (gone == nullptr || gone[slot] == 0) {
      const uint64_t own = layout::most_imported(ledger, device, slot);
      if (own == 0) return;
      imported += own;
      for_each_live(ledger, [&](uint32_t orphans) {
        if (exporter_of(orphans) == static_cast<int>(slot))
          most_of_one = std::max(most_of_one, own + exported_in(device, orphans));
      });
    }
  });
  return std::min({imported, exported, imported + exported - most_of_one});
}

uint64_t Ledger::exported_in(int device, uint32_t slot) const {
  const auto& word = file_.map()->cells[device][slot].exported_and_imported;
  return layout::exported_of(word.load(kRelaxed));
}

// The units that all orphan slots together are charged for exports that are not listed.
uint64_t Ledger::charged_for_unlisted(int device) const {
  const layout::Ledger& ledger = *file_.map();
  uint64_t sum = 0;
  for_each_live(ledger, [&](uint32_t slot) {
    if (ledger.slots[slot].orphaned.load(kRelaxed) != 0) {
      const uint64_t word = ledger.cells[device][slot].exported_and_imported.load(kRelaxed);
      sum += layout::imported_of(word);
    }
  });
  return sum;
}

// Turns the slot of a dead process into an orphan slot if other processes may have its exports.
// Returns whether the charge has fallen.
bool Ledger::keep_exports(uint32_t slot, const uint32_t* gone) {
  layout::Ledger& ledger = *file_.map();
  orphan_listed_exports(slot, gone);
  const uint32_t mark = layout::mark_of(ledger.slots[slot], slot);
  bool any = false, freed = false;
  layout::for_each_device(ledger, [&](uint32_t device) {
    layout::Cell& cell = ledger.cells[device][slot];
    const uint64_t word = cell.held_and_lease.load(kRelaxed);
    const uint64_t exported = exported_in(static_cast<int>(device), slot);
    const uint64_t unlisted = std::min({held_of(word), exported, kMaxUnits});
    const uint64_t listed = sum_listed(static_cast<int>(device), mark, layout::orphaned_of);
    const uint64_t kept = std::min(unlisted + listed, kMaxUnits);
    any = any || kept > 0;
    freed = freed || kept < layout::claim_of(word);
    cell.held_and_lease.store(pack(kept, 0), kRelaxed);
    cell.exported_and_imported.store(pack(unlisted, unlisted), kRelaxed);
    cell.overhead.store(0, kRelaxed);
    cell.time_and_allocations.store(0, kRelaxed);
    cell.parked.store(0, kRelaxed);
  });
  if (any) ledger.slots[slot].orphaned.store(1, kRelaxed);
  return freed;
}

// Lowers the charge to its upper bound. `gone`: not 0 for slots of dead processes, whose imports no
// longer count. Returns whether the charge has fallen. Slots are raised before others are lowered:
// a process that dies in between leaves too much counted, never too little.
bool Ledger::lower_orphans(int device, const uint32_t* gone) {
  layout::Ledger& ledger = *file_.map();
  const auto for_each_orphan = [&](auto visit) {
    for_each_live(ledger, [&](uint32_t slot) {
      if (ledger.slots[slot].orphaned.load(kRelaxed) != 0) visit(slot, ledger.cells[device][slot]);
    });
  };
  bool any = false, fallen = false;
  for_each_orphan([&](uint32_t slot, layout::Cell& cell) {
    any = true;
    const uint64_t word = cell.exported_and_imported.load(kRelaxed);
    const uint64_t exported = layout::exported_of(word);
    if (exported == 0) return;
    const uint64_t most =
        std::min({exported, imported_beside(exporter_of(slot), device, gone), kMaxUnits});
    const uint64_t charged = std::min(layout::imported_of(word), kMaxUnits);
    cell.exported_and_imported.store(pack(most, charged), kRelaxed);
  });
  if (!any) return false;
  const uint64_t charged = charged_for_unlisted(device), most = most_orphans(device, gone);
  for (const bool raises : {true, false}) {
    uint64_t left = std::min(charged, most);
    for_each_orphan([&](uint32_t slot, layout::Cell& cell) {
      const uint64_t exported = exported_in(device, slot);
      const uint64_t share = std::min(left, exported);
      left -= share;
      const uint64_t held = std::min(share + listed_orphans_in(device, slot), kMaxUnits);
      const uint64_t before = held_of(cell.held_and_lease.load(kRelaxed));
      if ((held > before) == raises) cell.held_and_lease.store(pack(held, 0), kOrdered);
      if ((share > layout::imported_of(cell.exported_and_imported.load(kRelaxed))) == raises)
        cell.exported_and_imported.store(pack(exported, share), kRelaxed);
      fallen = fallen || held < before;
    });
  }
  return fallen;
}

bool Ledger::has_orphans(uint32_t slot) const {
  const layout::Ledger& ledger = *file_.map();
  bool any = false;
  layout::for_each_device(ledger, [&](uint32_t device) {
    any = any || exported_in(static_cast<int>(device), slot) > 0 ||
          listed_orphans_in(static_cast<int>(device), slot) > 0;
  });
  return any;
}

uint64_t Ledger::orphaned_imports(int device) const {
  const layout::Ledger& ledger = *file_.map();
  const uint64_t unlisted =
      layout::imported_of(own_cell(device).exported_and_imported.load(kRelaxed));
  if (unlisted == 0 && !layout::has_imported_any(ledger.slots[slot_])) return 0;
  Message ignored;
  const int fd = file_.reopen(ignored);
  uint64_t orphans = 0;
  uint32_t gone[layout::kMaxSlots] = {};
  for_each_live(ledger, [&](uint32_t slot) {
    const uint64_t word = ledger.cells[device][slot].exported_and_imported.load(kRelaxed);
    if (ledger.slots[slot].orphaned.load(kRelaxed) != 0) {
      orphans += layout::imported_of(word);
    } else if (fd >= 0 && !LedgerFile::slot_is_alive(fd, slot)) {
      orphans += layout::exported_of(word);
      gone[slot] = 1;
    }
  });
  if (fd >= 0) close_own(fd);
  return listed_orphans_of_self(device, gone) + std::min(orphans, unlisted);
}

uint64_t Ledger::charge_unlisted_orphans(int device, layout::Cell& orphans, uint64_t most) {
  const uint64_t exported = layout::exported_of(orphans.exported_and_imported.load(kRelaxed));
  const uint64_t imported = imported_by_others(device);
  const uint64_t added =
      std::min({most, imported - std::min(imported, exported), kMaxUnits - exported});
  orphans.exported_and_imported.fetch_add(pack(added, 0), kRelaxed);
  const uint64_t charged = charged_for_unlisted(device), bound = most_orphans(device, nullptr);
  const uint64_t more = std::min(most, bound - std::min(bound, charged));
  orphans.exported_and_imported.fetch_add(pack(0, more), kRelaxed);
  return more;
}

// The words that list the orphans change before any charge. If the process dies in between, reaping
// charges them in its own slot.
bool Ledger::charge_orphans(int device, uint64_t most, uint32_t number, uint64_t& kept) {
  if (most == 0 || (number == 0 && imported_by_others(device) == 0)) return true;
  const GrowLock lock(file_, lock_timeout());
  note(lock);
  Message ignored;
  if (!lock || !keep_slot(lock, ignored)) return false;
  const LeaseScope scope(*file_.map(), lock, device);
  const int slot = orphan_slot(lock);
  if (slot < 0) return false;
  layout::Cell& orphans = file_.map()->cells[device][slot];
  kept = most;
  if (number != 0) {
    export_at(number).exported_and_orphaned.fetch_add(pack(0, most) - pack(most, 0));
  } else {
    kept = charge_unlisted_orphans(device, orphans, most);
  }
  orphans.held_and_lease.fetch_add(pack(kept, 0), kOrdered);
  return true;
}

// Charges the orphans before the own charge goes: a process that dies in between leaves too much
// counted, never too little. The lease shrinks by the units that were charged as orphans.
bool Ledger::free_exported(int device, uint64_t units, uint32_t number) {
  const bool is_orphaned = number != 0 && is_imported(number);
  // Imports whose exporter is unknown may be of this export too.
  const bool is_bounded = number != 0 && !is_orphaned;
  const uint64_t most = is_bounded ? std::min(units, unknown_imports_beside(slot_, device)) : units;
  uint64_t kept = 0;
  if (!charge_orphans(device, most, is_orphaned ? number : 0, kept)) return false;
  auto& own = own_cell(device).held_and_lease;
  uint64_t word = own.load(kRelaxed);
  while (!own.compare_exchange_weak(word, word - pack(units, std::min(lease_of(word), kept)),
                                    kRelaxed)) {
  }
  if (!is_orphaned) drop_exported(device, units, number);
  return true;
}

}  // namespace fracgpu
