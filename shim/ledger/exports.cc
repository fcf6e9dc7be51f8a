// Listed exports: memory of which the ledger knows which processes have imported it; see
// ledger_layout.h. A freed export then stays charged exactly as long as one of them has it.
//
// Exports are listed, and orphans are charged, under the file's lock. While they live, the exporter
// alone changes the exported units, and an importer alone its own bits. Nothing counts importers,
// so a process that is killed at any instruction leaves no count that is wrong.
#include <algorithm>

#include "shim/ledger/invariants.h"
#include "shim/ledger/ledger.h"

namespace fracgpu {
namespace {

using layout::Export;
using layout::exported_of;
using layout::for_each_export;
using layout::for_each_live;
using layout::kMaxExports;
using layout::kMaxUnits;
using layout::orphaned_of;
using layout::pack;

constexpr auto kRelaxed = std::memory_order_relaxed;

// For sums: a damaged word may mean any process and any device.
bool is_of(const Export& row, uint32_t mark) {
  return !layout::is_codeword(row.exporter.load()) || layout::exporter_of(row) == mark;
}
bool is_on(const Export& row, int device) {
  return !layout::is_codeword(row.exporter.load()) ||
         layout::device_of(row) == static_cast<uint32_t>(device);
}

uint64_t orphans_in(const Export& row, const uint32_t* gone) {
  const bool is_orphaned = gone[layout::slot_of(layout::exporter_of(row))] != 0;
  return orphaned_of(row) + (is_orphaned ? exported_of(row) : 0);
}

}  // namespace

layout::Export& Ledger::export_at(uint32_t number) const {
  return file_.map()->exports[number - 1];
}

bool Ledger::is_listed(uint32_t number) const {
  return number != 0 && number <= kMaxExports && !layout::is_free(export_at(number));
}

uint32_t Ledger::list_export(int device, uint64_t units) {
  const GrowLock lock(file_, lock_timeout());
  note(lock);
  Message ignored;
  if (!lock || !keep_slot(lock, ignored)) return 0;
  // An importer may still have memory that had this number.
  const layout::Ledger& ledger = *file_.map();
  const auto is_usable = [&](uint32_t number) {
    bool is_named = false;
    for_each_live(ledger, [&](uint32_t slot) {
      is_named = is_named || layout::has_imported(ledger.slots[slot], number);
    });
    return layout::is_free(export_at(number)) && !is_named;
  };
  uint32_t number = 1;
  while (number <= kMaxExports && !is_usable(number)) ++number;
  if (number > kMaxExports) return 0;
  // The handles of the memory that had this number open nothing any more.
  for (auto& handle : file_.map()->handles) {
    uint64_t word = handle.load(kRelaxed);
    if ((word & layout::kNumberMask) == number)
      handle.compare_exchange_strong(word, word & ~layout::kNumberMask);
  }
  export_at(number).exporter.store(layout::exporter_word(device, mark_of_self()));
  export_at(number).exported_and_orphaned.store(pack(units, 0));
  return number;
}

void Ledger::add_exported(int device, uint64_t units, uint32_t number) {
  auto& word = number != 0 ? export_at(number).exported_and_orphaned
                           : own_cell(device).exported_and_imported;
  word.fetch_add(pack(units, 0));
}

void Ledger::note_freed(int device, uint32_t number) {
  if (number == 0) return;
  export_at(number).exporter.store(
      layout::exporter_word(device, mark_of_self() | layout::kIsFreed));
}

void Ledger::drop_exported(int device, uint64_t units, uint32_t number) {
  auto& word = number != 0 ? export_at(number).exported_and_orphaned
                           : own_cell(device).exported_and_imported;
  word.fetch_sub(pack(units, 0));
}

void Ledger::note_handle(uint64_t hash, uint32_t number) {
  layout::enter_handle(file_.map()->handles, hash, number,
                       [&](uint32_t other) { return is_listed(other); });
}

uint32_t Ledger::find_export(uint64_t hash) const {
  const uint32_t number = layout::find_handle(file_.map()->handles, hash).value_or(0);
  return is_listed(number) ? number : 0;
}

uint32_t Ledger::find_export(uint32_t number, uint32_t exporter) const {
  return is_listed(number) && is_of(export_at(number), exporter) ? number : 0;
}

uint64_t Ledger::units_of_export(uint32_t number) const {
  return exported_of(export_at(number)) + orphaned_of(export_at(number));
}

// A damaged word stands for all exports, and must stay damaged.
void Ledger::add_import(uint32_t number) {
  auto& word = file_.map()->slots[slot_].imports[(number - 1) / layout::kExportsPerWord];
  if (!layout::has_imported(file_.map()->slots[slot_], number))
    word.fetch_add(layout::import_bit(number));
}

void Ledger::drop_import(uint32_t number) {
  auto& word = file_.map()->slots[slot_].imports[(number - 1) / layout::kExportsPerWord];
  if (layout::is_codeword(word.load()) && layout::has_imported(file_.map()->slots[slot_], number))
    word.fetch_sub(layout::import_bit(number));
}

// `gone`: not 0 for slots of processes that do not count, or null.
bool Ledger::is_imported(uint32_t number, const uint32_t* gone) const {
  const layout::Ledger& ledger = *file_.map();
  const Export& row = export_at(number);
  const bool is_sound = layout::is_codeword(row.exporter.load());
  bool any = false;
  for_each_live(ledger, [&](uint32_t slot) {
    const layout::Slot& importer = ledger.slots[slot];
    // What an exporter has imported of its own is its own charge; see Imports::imported_of_self.
    if (is_sound && slot == layout::slot_of(layout::exporter_of(row))) return;
    if (importer.orphaned.load(kRelaxed) != 0 || (gone != nullptr && gone[slot] != 0)) return;
    // Read first: what a call that is no longer under way has imported is already in the bits.
    const bool is_importing = importer.importing.load() != 0;
    any = any || is_importing || layout::has_imported(importer, number);
  });
  return any;
}

uint64_t Ledger::sum_listed(int device, uint32_t mark, uint64_t (*half)(const Export&)) const {
  uint64_t sum = 0;
  for_each_export(*file_.map(), [&](uint32_t, const Export& row) {
    if (is_of(row, mark) && is_on(row, device)) sum += half(row);
  });
  return std::min(sum, kMaxUnits);
}

// What an orphan slot is charged for listed exports. If their exporter lives no longer, they are
// charged in its own slot.
uint64_t Ledger::listed_orphans_in(int device, uint32_t slot) const {
  const layout::Ledger& ledger = *file_.map();
  const int living = exporter_of(slot);
  if (living < 0 && ledger.slots[slot].orphaned.load(kRelaxed) != 1) return 0;
  const uint32_t exporter = living < 0 ? slot : static_cast<uint32_t>(living);
  return sum_listed(device, layout::mark_of(ledger.slots[exporter], exporter), orphaned_of);
}

// The units that exporters have freed, or have died with, and that living processes have imported.
// `gone`: not 0 for slots of dead processes.
uint64_t Ledger::listed_orphans_in_use(int device, const uint32_t* gone) const {
  uint64_t sum = 0;
  for_each_export(*file_.map(), [&](uint32_t number, const Export& row) {
    const uint64_t orphans = is_on(row, device) ? orphans_in(row, gone) : 0;
    if (orphans > 0 && is_imported(number, gone)) sum += orphans;
  });
  return sum;
}

uint64_t Ledger::exports_of_dead_in_use(int device, uint32_t slot, int fd) const {
  const layout::Ledger& ledger = *file_.map();
  const uint32_t mark = layout::mark_of(ledger.slots[slot], slot);
  const auto sum_of = [&](const uint32_t* gone) {
    uint64_t sum = 0;
    for_each_export(ledger, [&](uint32_t number, const Export& row) {
      if (is_of(row, mark) && is_on(row, device) && is_imported(number, gone))
        sum += exported_of(row);
    });
    return sum;
  };
  if (sum_of(nullptr) == 0) return 0;
  uint32_t gone[layout::kMaxSlots] = {};
  for_each_live(
      ledger, [&](uint32_t other) { gone[other] = LedgerFile::slot_is_alive(fd, other) ? 0 : 1; });
  return sum_of(gone);
}

uint64_t Ledger::unknown_imports_beside(uint32_t exporter, int device) const {
  const layout::Ledger& ledger = *file_.map();
  uint64_t sum = 0;
  for_each_live(ledger, [&](uint32_t slot) {
    if (slot == exporter || ledger.slots[slot].orphaned.load(kRelaxed) != 0) return;
    const uint64_t word = ledger.cells[device][slot].unknown_imports.load();
    sum += layout::is_codeword(word) ? layout::decode(word) : layout::kDamaged;
  });
  return sum;
}

uint64_t Ledger::listed_orphans_of_self(int device, const uint32_t* gone) const {
  const layout::Ledger& ledger = *file_.map();
  uint64_t sum = 0;
  for_each_export(ledger, [&](uint32_t number, const Export& row) {
    if (!is_on(row, device) || !layout::has_imported(ledger.slots[slot_], number)) return;
    // Descriptors may have closed since.
    sum += layout::is_freed(row) ? exported_of(row) + orphaned_of(row) : orphans_in(row, gone);
  });
  return sum;
}

// With the lock held. The exports of a dead process are orphaned if they are imported, and gone
// otherwise. If there are imports whose exporter is unknown, the others count as not listed.
void Ledger::orphan_listed_exports(uint32_t slot, const uint32_t* gone) {
  layout::Ledger& ledger = *file_.map();
  const uint32_t mark = layout::mark_of(ledger.slots[slot], slot);
  for_each_export(ledger, [&](uint32_t number, const Export& row) {
    if (!layout::is_codeword(row.exporter.load()) || !is_of(row, mark)) return;
    const uint64_t units = std::min(exported_of(row) + orphaned_of(row), kMaxUnits);
    const uint32_t device = std::min(layout::device_of(row), layout::kMaxDevices - 1);
    const bool is_kept = is_imported(number, gone);
    if (!is_kept && unknown_imports_beside(slot, static_cast<int>(device)) > 0)
      ledger.cells[device][slot].exported_and_imported.fetch_add(pack(units, 0));
    export_at(number).exported_and_orphaned.store(is_kept ? pack(0, units) : 0);
  });
}

// With the lock held. An exporter may change the other half meanwhile. The damaged word of a living
// exporter stays.
void Ledger::forget_released_orphans(const uint32_t* gone) {
  const layout::Ledger& ledger = *file_.map();
  for_each_export(ledger, [&](uint32_t number, const Export& row) {
    const bool is_codeword = layout::is_codeword(row.exported_and_orphaned.load());
    if ((is_codeword && orphaned_of(row) == 0) || is_imported(number, gone)) return;
    if (is_codeword) {
      export_at(number).exported_and_orphaned.fetch_sub(pack(0, orphaned_of(row)));
      return;
    }
    const uint32_t exporter = layout::slot_of(layout::exporter_of(row));
    const bool lives =
        layout::is_codeword(row.exporter.load()) && exporter < layout::slots_backed(ledger) &&
        ledger.slots[exporter].orphaned.load(kRelaxed) == 0 &&
        layout::exporter_of(row) == layout::mark_of(ledger.slots[exporter], exporter);
    if (!lives) export_at(number).exported_and_orphaned.store(0);
  });
}

}  // namespace fracgpu
