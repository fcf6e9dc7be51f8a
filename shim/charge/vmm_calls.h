// Calls on memory that is created, mapped and released separately, as every vendor has them. Each
// function wraps the driver's own call, `call()`, which returns 0 on success. See physical_table.h.
#pragma once

#include <algorithm>

#include "shim/charge/in_flight.h"
#include "shim/charge/linear.h"
#include "shim/sharing/descriptor_mark.h"

namespace fracgpu {

// Reports new memory with this `handle` to the recorder.
[[gnu::cold]] void record_physical(Process& process, const Reservation& reservation,
                                   uint64_t handle, uint64_t units);

// Creates `units` of memory on the device index, under a reservation. `handle_of()` is the new
// handle, and `undo()` releases it again. `refused`: the API's result if there is no room, which is
// also the driver's.
template <typename Result, typename Call, typename HandleOf, typename Undo>
Result make_physical(Process& process, Reservation& reservation, uint64_t units, Result refused,
                     Call call, HandleOf handle_of, Undo undo) {
  const Result result = call();
  if (result == refused) reservation.refused_by_driver();
  if (result != 0) return result;
  if (!process.physical.add(handle_of(), units, reservation.device_index())) {
    undo();
    return refused;
  }
  reservation.keep(units);
  if (process.recorder.is_on()) record_physical(process, reservation, handle_of(), units);
  return result;
}

// Drops a reference: a handle, or an address at which another process's memory was opened. Once the
// driver has released it, calls released(memory).
template <typename Call, typename Released>
auto release_physical(Process& process, uint64_t handle, Call call, Released released) {
  const InFlightScope in_flight(process);
  const uint64_t memory = process.physical.give_up_reference(handle);
  const auto result = call();
  if (memory == 0) return result;
  if (result == 0) {
    released(memory);
    give_back(process, process.physical.drop_reference(memory));
  } else {
    process.physical.keep_reference(handle, memory);
  }
  return result;
}
template <typename Call>
auto release_physical(Process& process, uint64_t handle, Call call) {
  return release_physical(process, handle, call, [](uint64_t) {});
}

// Drops the only reference to an import, by its key. The driver has released it already.
inline void give_back_import(Process& process, uint64_t key) {
  PhysicalTable& physical = process.physical;
  give_back(process, physical.drop_reference(physical.give_up_reference(key)));
}

// The memory, if it is an import, has at least `units`.
inline void note_import_of(Process& process, uint64_t memory, uint64_t units) {
  const PhysicalTable::Freed more = process.physical.note_import(memory, units);
  if (more.imported > 0)
    process.imports.add(process.ledger, more.source, more.device_index, more.imported);
}

template <typename Call>
auto map_physical(Process& process, uint64_t address, uint64_t size, uint64_t handle, Call call) {
  const uint64_t memory = process.physical.memory_of(handle);
  const auto result = call();
  if (result == 0 && memory != 0) {
    give_back(process, process.physical.add_mapping(address, size, memory));
    note_import_of(process, memory, layout::units_for(size));
  }
  return result;
}

template <typename Call>
auto unmap_physical(Process& process, uint64_t address, uint64_t size, Call call) {
  const InFlightScope in_flight(process);
  const uint64_t serial = process.physical.serial();
  const auto result = call();
  if (result == 0) {
    process.physical.drop_mappings(address, size, serial, [&](const PhysicalTable::Freed& freed) {
      give_back(process, freed);
    });
  }
  return result;
}

// Tokens in OpenExports.
inline uint64_t token_of(const Allocation& entry) {
  return OpenExports::token_of(OpenExports::Of::allocation, entry.key);
}
inline uint64_t token_of(const PhysicalTable::Freed& charge) {
  return OpenExports::token_of(OpenExports::Of::physical, charge.memory);
}

inline uint32_t number_of_export(Process& process, uint64_t token) {
  const Locked<SleepLock> lock(process.exports.lock);
  return process.exports.number_of(token);
}

// Memory of this process was exported as a descriptor, or as a handle of plain bytes. `token`: the
// memory's in OpenExports.
inline void note_descriptor(Process& process, int fd, uint64_t units, uint64_t token) {
  const uint32_t tenant = layout::mark_of(process.ledger.map()->header);
  mark_descriptor(fd, {.tenant = tenant,
                       .exporter = process.ledger.mark_of_self(),
                       .number = number_of_export(process, token),
                       .units = static_cast<uint32_t>(units)});
  process.open_exports.watch(fd, token);
}
// The same for a memory handle's memory.
inline void note_descriptor(Process& process, int fd, const PhysicalTable::Freed& charge) {
  note_descriptor(process, fd, charge.units, token_of(charge));
}
// `token`: 0 for memory of a pool.
inline void note_handle(Process& process, const void* handle, size_t size, uint64_t token) {
  if (!process.has_joined()) return;
  const uint64_t hash = layout::hash_of_handle(handle, size);
  process.imports.note_own_handle(hash);
  process.ledger.note_handle(hash, number_of_export(process, token));
}

// Others may import `units` of memory with this token as a whole from now on. With the table's lock
// held since the memory was marked as exported, so that no thread meets it without its number.
// Memory may be exported at the address of memory that a descriptor still holds: both have one
// number.
inline void note_export(Process& process, uint64_t token, int device_index, uint64_t units) {
  ExportTable::Export* const entry = process.exports.enter(token);
  const bool is_new = entry != nullptr && entry->units == 0;
  if (is_new) entry->number = process.ledger.list_export(device_index, units);
  const uint32_t number = entry != nullptr ? entry->number : 0;
  if (!is_new || number == 0) process.ledger.add_exported(device_index, units, number);
  if (entry != nullptr) entry->units += units;
}
// Freed memory with this token is held by descriptors.
inline void note_freed_export(Process& process, uint64_t token, int device_index) {
  process.ledger.note_freed(device_index, number_of_export(process, token));
}
// `units` of it are exported no longer, even if they are imported.
inline void drop_export(Process& process, uint64_t token, int device_index, uint64_t units) {
  const Locked<SleepLock> lock(process.exports.lock);
  process.ledger.drop_exported(device_index, units, process.exports.take(token, units));
}

// Memory with this number was exported. If it is this process's, returns true with its charge.
inline bool note_exported_memory(Process& process, uint64_t memory, PhysicalTable::Freed& charge) {
  const Locked<SleepLock> lock(process.exports.lock);
  if (process.physical.mark_exported(memory, charge))
    note_export(process, token_of(charge), charge.device_index, charge.units);
  return charge.units > 0;
}
// The same for a handle's memory.
inline bool note_exported(Process& process, uint64_t handle, PhysicalTable::Freed& charge) {
  return note_exported_memory(process, process.physical.memory_of(handle), charge);
}

// An allocation was exported, by its address; it may be in a chunk. Copies its entry to `entry` if
// there is one. True the first time.
inline bool note_exported_allocation(Process& process, uint64_t address, Allocation& entry) {
  const Locked<SleepLock> lock(process.exports.lock);
  const bool first = process.allocations.mark_exported(address, entry) ||
                     process.allocations.mark_exported(chunk_key(address), entry);
  if (first) note_export(process, token_of(entry), entry.device_index, entry.units);
  return first;
}

// A call that may import other processes' memory, by the bytes of a handle or by a descriptor. The
// exporter's ledger counts such calls from before the driver is asked until the size is noted, so
// that the exporter's death meanwhile is not missed.
class ImportCall {
 public:
  ImportCall(Process& process, const void* handle, size_t size) : process_(process) {
    if (handle != nullptr && process.join())
      source_ = process.imports.begin_call(process.ledger, handle, size, told_);
  }
  ImportCall(Process& process, int fd) : process_(process) {
    if (process.join()) source_ = process.imports.begin_call(process.ledger, fd, told_);
  }
  // `place`: see Imports::begin_call.
  ImportCall(Process& process, const DescriptorMark& mark, uint32_t place = 0) : process_(process) {
    if (process.join()) source_ = process.imports.begin_call(process.ledger, mark, told_, place);
  }
  ~ImportCall() {
    if (source_.exporter != 0) process_.imports.end_call(process_.ledger, source_, kept_);
  }
  ImportCall(const ImportCall&) = delete;
  ImportCall& operator=(const ImportCall&) = delete;

  // The call has imported memory. `key` is the new handle or address, and the memory has `units`
  // (0: not known) on the device index.
  void imported(uint64_t key, int device_index, uint64_t units) {
    PhysicalTable& physical = process_.physical;
    if (physical.add_reference(key, source_)) return;
    if (device_index < 0 || source_.exporter == 0 || !physical.add(key, 0, device_index, source_))
      return;
    kept_ = true;
    process_.imports.keep(process_.ledger, source_);
    note_import_of(process_, physical.memory_of(key), std::max(units, told_));
  }

 private:
  Process& process_;
  ImportSource source_;  // none: the memory was never in a ledger of ours
  uint64_t told_ = 0;    // units, from the source
  bool kept_ = false;    // the memory's last use will call `leave`
};

// Frees memory at an address by `call()`. After that, `done(Release&)` gives back its charge. If
// other processes' memory was opened there and the call closes it, forgets that memory.
template <typename Call, typename Done>
auto free_address(Process& process, uint64_t address, Call call, Done done) {
  Release release(process, address);
  if (!release.found()) process.pool_blocks.forget(address);
  if (!release.found() && process.physical.memory_of(address) != 0) {
    return release_physical(process, address, call);
  }
  const auto result = call();
  if (result == 0) done(release);
  return result;
}

}  // namespace fracgpu
