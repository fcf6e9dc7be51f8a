// The calls on memory that is made, mapped and released separately, as every vendor has them: each
// wraps the driver's own call, `call()`, which returns 0 when it succeeded. See physical_table.h.
#pragma once

#include "shim/charge.h"

namespace fracgpu {

// Makes a handle `*handle_of()` to `units` of memory on the row, under a reservation; `undo()`
// releases it again. `refused`: what the API answers, and the driver,
// when there is no room.
template <typename Result, typename Call, typename HandleOf, typename Undo>
Result make_physical(Process& process, Reservation& reservation, uint64_t units, Result refused,
                     Call call, HandleOf handle_of, Undo undo) {
  const Result result = call();
  if (result == refused) reservation.refused_by_driver();
  if (result != 0) return result;
  if (!process.physical.add(handle_of(), units, reservation.row())) {
    undo();
    return refused;
  }
  reservation.keep(units);
  return result;
}

// Drops a reference: a handle, or an address at which other processes' memory was opened.
template <typename Call>
auto release_physical(Process& process, uint64_t handle, Call call) {
  const Disturbance disturbance(process);
  const uint64_t memory = process.physical.memory_of(handle);
  const auto result = call();
  if (result == 0 && memory != 0) give_back(process, process.physical.drop_reference(memory));
  return result;
}

template <typename Call>
auto map_physical(Process& process, uint64_t address, uint64_t size, uint64_t handle, Call call) {
  const uint64_t memory = process.physical.memory_of(handle);
  const auto result = call();
  if (result == 0 && memory != 0) {
    give_back(process, process.physical.add_mapping(address, size, memory));
    int row = 0;
    const uint64_t more = process.physical.note_import(memory, layout::units_for(size), row);
    if (more > 0) process.ledger.add_imported(row, more);
  }
  return result;
}

template <typename Call>
auto unmap_physical(Process& process, uint64_t address, uint64_t size, Call call) {
  const Disturbance disturbance(process);
  const uint64_t serial = process.physical.serial();
  const auto result = call();
  if (result == 0) {
    process.physical.drop_mappings(address, size, serial, [&](const PhysicalTable::Freed& freed) {
      give_back(process, freed);
    });
  }
  return result;
}

// The memory of a handle was exported.
inline void note_exported(Process& process, uint64_t handle) {
  PhysicalTable::Freed charge;
  if (process.physical.mark_exported(process.physical.memory_of(handle), charge)) {
    process.ledger.add_exported(charge.row, charge.units);
  }
}

// An allocation was exported: by its address, or as a part of a chunk. True with its entry the
// first time.
inline bool note_exported_allocation(Process& process, uint64_t address, Allocation& entry) {
  const bool first = process.allocations.mark_exported(address, entry) ||
                     process.allocations.mark_exported(chunk_key(address), entry);
  if (first) process.ledger.add_exported(entry.row, entry.units);
  return first;
}

// Other processes' memory of `units` was opened at an address.
inline void note_opened(Process& process, uint64_t address, int row, uint64_t units) {
  PhysicalTable& physical = process.physical;
  if (const uint64_t known = physical.memory_of(address); known != 0) {
    return physical.add_reference(address, known);
  }
  if (row < 0 || !physical.add(address, 0, row, true)) return;
  const uint64_t more = physical.note_import(physical.memory_of(address), units, row);
  process.ledger.add_imported(row, more);
}

// Frees memory at an address by `call()`, after which `done(Release&)` gives back its charge; or
// forgets other processes' memory that was opened there and that the same call lets go of.
template <typename Call, typename Done>
auto free_address(Process& process, uint64_t address, Call call, Done done) {
  Release release(process, address);
  if (!release.found() && process.physical.memory_of(address) != 0) {
    return release_physical(process, address, call);
  }
  const auto result = call();
  if (result == 0) done(release);
  return result;
}

}  // namespace fracgpu
