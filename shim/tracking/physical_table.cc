// Three small tables under one lock; see physical_table.h.
#include "shim/tracking/physical_table.h"

#include <algorithm>

namespace fracgpu {

bool PhysicalTable::add(uint64_t handle, uint64_t units, int device_index, ImportSource source) {
  Locked<SpinLock> lock(lock_);
  const InvariantScope scope(*this, timer_);
  Handle* entry = handles_.insert(handle);
  if (entry == nullptr) return false;
  const uint64_t number = next_;
  Memory* memory = memories_.insert(number);
  if (memory == nullptr) {
    handles_.erase(handles_.find(handle));
    return false;
  }
  ++next_;
  ++changes_;
  any_.store(true, std::memory_order_relaxed);
  entry->memory = number;
  entry->references = 1;
  memory->handle = handle;
  memory->units = units;
  memory->uses = 1;
  memory->source = source;
  memory->device_index = static_cast<uint8_t>(device_index);
  units_[device_index] += units;
  if (units > 0) ++count_[device_index];
  return true;
}

uint64_t PhysicalTable::memory_of(uint64_t handle) {
  if (handle == 0 || !any_.load(std::memory_order_relaxed)) return 0;
  Locked<SpinLock> lock(lock_);
  const Handle* entry = handles_.find(handle);
  return entry != nullptr ? entry->memory : 0;
}

uint64_t PhysicalTable::memory_at(uint64_t address, unsigned* probes) {
  Locked<SpinLock> lock(lock_);
  uint64_t nearest = 0, memory = 0;
  for (uint64_t orders = orders_; orders != 0; orders &= orders - 1) {
    const int order = std::countr_zero(orders);
    const uint64_t own = address >> order;
    for (uint64_t block = own; own - block <= 2 && block <= own; --block) {
      if (probes != nullptr) ++*probes;
      const Begin* begin = begins_.find(begin_key(block, order));
      if (begin == nullptr || begin->begin > address || begin->begin < nearest) continue;
      const Mapping* mapping = mappings_.find(begin->begin);
      if (mapping == nullptr || address - mapping->key >= mapping->size) continue;
      nearest = mapping->key;
      memory = mapping->memory;
    }
  }
  return memory;
}

bool PhysicalTable::enter_begin(uint64_t key, uint64_t size) {
  if (const Mapping* before = mappings_.find(key); before != nullptr) forget_begin(*before);
  const int order = order_of(size);
  Begin* begin = begins_.insert(begin_key(key >> order, order));
  if (begin == nullptr) return false;
  begin->begin = key;
  orders_ |= uint64_t{1} << order;
  granules_ |= key | size;
  return true;
}

void PhysicalTable::forget_begin(const Mapping& mapping) {
  const int order = order_of(mapping.size);
  Begin* begin = begins_.find(begin_key(mapping.key >> order, order));
  if (begin != nullptr && begin->begin == mapping.key) begins_.erase(begin);
}

bool PhysicalTable::mark_exported(uint64_t number, Freed& charge) {
  Locked<SpinLock> lock(lock_);
  const InvariantScope scope(*this, timer_);
  Memory* memory = memories_.find(number);
  if (memory == nullptr || memory->units == 0) return false;
  charge = {.memory = number, .units = memory->units, .device_index = memory->device_index};
  const bool first = !memory->exported;
  memory->exported = true;
  return first;
}

PhysicalTable::Freed PhysicalTable::note_import(uint64_t number, uint64_t units) {
  Locked<SpinLock> lock(lock_);
  const InvariantScope scope(*this, timer_);
  Memory* memory = memories_.find(number);
  if (memory == nullptr || memory->source.exporter == 0 || units <= memory->imported) return {};
  const uint64_t more = units - memory->imported;
  memory->imported = units;
  return {.memory = number,
          .imported = more,
          .source = memory->source,
          .device_index = memory->device_index};
}

void PhysicalTable::add_reference(uint64_t handle, uint64_t memory) {
  Locked<SpinLock> lock(lock_);
  const InvariantScope scope(*this, timer_);
  Memory* entry = memories_.find(memory);
  if (entry == nullptr) return;
  ++entry->uses;
  ++changes_;
  entry->aliased = entry->aliased || handle != entry->handle;
  refer(handle, memory);
}

bool PhysicalTable::add_reference(uint64_t handle, ImportSource source) {
  Locked<SpinLock> lock(lock_);
  const InvariantScope scope(*this, timer_);
  Handle* const name = find_referenced(handle);
  if (name == nullptr) return false;
  Memory* const entry = memories_.find(name->memory);
  if (entry->source.number != 0 && entry->source.number != source.number) return false;
  ++name->references;
  ++entry->uses;
  ++changes_;
  return true;
}

bool PhysicalTable::is_referenced(uint64_t handle) {
  if (!any_.load(std::memory_order_relaxed)) return false;
  Locked<SpinLock> lock(lock_);
  return find_referenced(handle) != nullptr;
}

// With the lock held: the handle's entry, or null if it is not known, or given up.
PhysicalTable::Handle* PhysicalTable::find_referenced(uint64_t handle) {
  Handle* const name = handles_.find(handle);
  const bool is_referenced =
      name != nullptr && name->references > 0 && memories_.find(name->memory) != nullptr;
  return is_referenced ? name : nullptr;
}

// With the lock held: the handle stands for the memory, once more.
void PhysicalTable::refer(uint64_t handle, uint64_t memory) {
  Handle* const name = handles_.insert(handle);
  if (name == nullptr) return;
  name->references = name->memory == memory ? name->references + 1 : 1;
  name->memory = memory;
}

uint64_t PhysicalTable::give_up_reference(uint64_t handle) {
  if (handle == 0 || !any_.load(std::memory_order_relaxed)) return 0;
  Locked<SpinLock> lock(lock_);
  Handle* const name = handles_.find(handle);
  if (name == nullptr || name->references == 0) return 0;
  --name->references;
  return name->memory;
}

void PhysicalTable::keep_reference(uint64_t handle, uint64_t memory) {
  Locked<SpinLock> lock(lock_);
  if (memories_.find(memory) != nullptr) refer(handle, memory);
}

PhysicalTable::Freed PhysicalTable::drop_use(uint64_t number) {
  ++changes_;
  Memory* memory = memories_.find(number);
  if (memory == nullptr || --memory->uses > 0) return {};
  const Freed freed = {.memory = number,
                       .units = memory->units,
                       .imported = memory->imported,
                       .source = memory->source,
                       .device_index = memory->device_index,
                       .exported = memory->exported,
                       .lingers = memory->lingers};
  units_[freed.device_index] -= freed.units;
  if (memory->has_no_object) without_object_[freed.device_index] -= freed.units;
  if (freed.units > 0) --count_[freed.device_index];
  // Its handles are invalid now; the driver may have given their values to other memory.
  if (Handle* name = handles_.find(memory->handle); name != nullptr && name->memory == number) {
    handles_.erase(name);
  }
  if (memory->aliased) {
    handles_.erase_if([&](const Handle& handle) { return handle.memory == number; });
  }
  memories_.erase(memory);
  return freed;
}

// Drops a mapping's use of the memory; if `busy` is a stream, once its work is done.
PhysicalTable::Freed PhysicalTable::drop_use_after(const BusyStream& busy, uint64_t number,
                                                   uint16_t context) {
  Memory* const memory = busy.ask != nullptr ? memories_.find(number) : nullptr;
  if (memory == nullptr) return drop_use(number);
  Unmap* const unmap = unmaps_.insert(serial_ + 1);
  if (unmap == nullptr) {  // out of host memory
    memory->lingers = true;
    return drop_use(number);
  }
  ++serial_;
  ++changes_;
  ++memory->unmaps;
  unmap->memory = number;
  unmap->stream = busy;
  unmap->context = context;
  unmaps_waiting_.store(unmaps_.size(), std::memory_order_relaxed);
  return {};
}

// With the lock held: the unmapping no longer waits, and its entry is about to be erased.
PhysicalTable::Freed PhysicalTable::drop_use_of(const Unmap& unmap, bool lingers) {
  unmaps_waiting_.store(unmaps_.size() - 1, std::memory_order_relaxed);
  Memory* const memory = memories_.find(unmap.memory);
  --memory->unmaps;
  memory->lingers = memory->lingers || lingers;
  return drop_use(unmap.memory);
}

bool PhysicalTable::has_unmaps(uint64_t stream) {
  Locked<SpinLock> lock(lock_);
  bool any = false;
  unmaps_.for_each([&](const Unmap& unmap) { any |= unmap.stream.number == stream; });
  return any;
}

// Different streams in which unmappings wait.
size_t PhysicalTable::busy_streams(BusyStream* streams, size_t most) {
  Locked<SpinLock> lock(lock_);
  size_t count = 0;
  unmaps_.for_each([&](const Unmap& unmap) {
    const BusyStream& stream = unmap.stream;
    const bool is_known = std::find(streams, streams + count, stream) != streams + count;
    if (!is_known && count < most) streams[count++] = stream;
  });
  return count;
}

PhysicalTable::Freed PhysicalTable::drop_reference(uint64_t memory) {
  Locked<SpinLock> lock(lock_);
  const InvariantScope scope(*this, timer_);
  return drop_use(memory);
}

PhysicalTable::Freed PhysicalTable::add_mapping(uint64_t key, uint64_t size, uint64_t memory,
                                                uint64_t owner, uint16_t context,
                                                const BusyStream& busy) {
  Locked<SpinLock> lock(lock_);
  const InvariantScope scope(*this, timer_);
  Memory* entry = memories_.find(memory);
  if (entry == nullptr) return {};
  ++entry->uses;
  // A mapping that cannot be entered stays charged, which errs on the safe side.
  if (key >> 63 == 0 && !enter_begin(key, size)) return {};
  Mapping* mapping = mappings_.insert(key);
  if (mapping == nullptr) return {};
  const uint64_t before = mapping->memory;
  const uint16_t context_before = mapping->context;
  mapping->size = size;
  mapping->memory = memory;
  mapping->owner = owner;
  mapping->context = context;
  mapping->serial = ++serial_;
  ++changes_;
  return before != 0 ? drop_use_after(busy, before, context_before) : Freed{};
}

bool PhysicalTable::is_mapped(uint64_t key) {
  Locked<SpinLock> lock(lock_);
  return mappings_.find(key) != nullptr;
}

void PhysicalTable::linger(uint64_t key) {
  Locked<SpinLock> lock(lock_);
  const Mapping* const mapping = mappings_.find(key);
  Memory* const memory = mapping != nullptr ? memories_.find(mapping->memory) : nullptr;
  if (memory != nullptr) memory->lingers = true;
}

void PhysicalTable::linger_owned(uint64_t owner) {
  Locked<SpinLock> lock(lock_);
  mappings_.for_each([&](const Mapping& mapping) {
    Memory* const memory = mapping.owner == owner ? memories_.find(mapping.memory) : nullptr;
    if (memory != nullptr) memory->lingers = true;
  });
}

uint64_t PhysicalTable::serial() {
  Locked<SpinLock> lock(lock_);
  return serial_;
}

void PhysicalTable::note_object_gone(uint64_t number) {
  Locked<SpinLock> lock(lock_);
  const InvariantScope scope(*this, timer_);
  Memory* memory = memories_.find(number);
  if (memory == nullptr || memory->has_no_object) return;
  memory->has_no_object = true;
  without_object_[memory->device_index] += memory->units;
  ++changes_;
}

PhysicalTable::Sum PhysicalTable::sum(int device_index) {
  Locked<SpinLock> lock(lock_);
  Sum sum = {.units = units_[device_index],
             .without_object = without_object_[device_index],
             .changes = changes_};
  if (unmaps_.size() == 0) return sum;
  memories_.for_each([&](const Memory& memory) {
    if (memory.device_index != device_index || memory.unmaps < memory.uses) return;
    sum.unmapped += memory.units;
    if (memory.has_no_object) sum.without_object -= memory.units;
  });
  return sum;
}

uint64_t PhysicalTable::count(int device_index) {
  Locked<SpinLock> lock(lock_);
  return count_[device_index];
}

std::string_view PhysicalTable::find_broken_invariant() const {
  for (const std::string_view broken :
       {handles_.check_invariants(), memories_.check_invariants(), mappings_.check_invariants()}) {
    if (!broken.empty()) return broken;
  }
  std::string_view broken;
  uint64_t units[layout::kMaxDevices] = {}, count[layout::kMaxDevices] = {}, uses = 0, unmaps = 0;
  uint64_t without_object[layout::kMaxDevices] = {};
  memories_.for_each([&](const Memory& memory) {
    if (memory.device_index >= layout::kMaxDevices) {
      broken = "every memory is on a device of the ledger";
      return;
    }
    if (memory.uses == 0) broken = "every memory has a use";
    if (memory.key >= next_) broken = "no memory has a number that was not given out";
    if (memory.unmaps > memory.uses) broken = "an unmapping that waits is a use of its memory";
    uses += memory.uses;
    unmaps += memory.unmaps;
    units[memory.device_index] += memory.units;
    if (memory.has_no_object) without_object[memory.device_index] += memory.units;
    if (memory.units > 0) ++count[memory.device_index];
  });
  if (!broken.empty()) return broken;
  for (uint32_t i = 0; i < layout::kMaxDevices; ++i) {
    if (units[i] != units_[i]) return "a device's units are those of its memories";
    if (without_object[i] != without_object_[i])
      return "a device's units without an object are those of such memories";
    if (count[i] != count_[i])
      return "a device's count is that of its memories that cost something";
  }
  handles_.for_each([&](const Handle& handle) {
    if (memories_.find(handle.memory) == nullptr) broken = "every handle stands for live memory";
  });
  mappings_.for_each([&](const Mapping& mapping) {
    if (memories_.find(mapping.memory) == nullptr) broken = "every mapping is of live memory";
    if (mapping.serial > serial_) broken = "no mapping is younger than the last one";
    if (mapping.key >> 63 != 0) return;  // a binding, which no address leads to
    const int order = order_of(mapping.size);
    const Begin* const begin = begins_.find(begin_key(mapping.key >> order, order));
    if ((orders_ >> order & 1) == 0 || begin == nullptr || begin->begin != mapping.key ||
        ((mapping.key | mapping.size) & ~granules_) != 0) {
      broken = "look-ups by address know every mapping's size and alignment";
    }
  });
  unmaps_.for_each([&](const Unmap& unmap) {
    if (memories_.find(unmap.memory) == nullptr) broken = "every unmapping is of live memory";
  });
  if (!broken.empty()) return broken;
  if (unmaps_.size() != unmaps || unmaps != unmaps_waiting_.load(std::memory_order_relaxed))
    return "every memory knows how many of its mappings wait";
  if (mappings_.size() > uses) return "every mapping is a use of its memory";
  if (memories_.size() > 0 && !any_.load(std::memory_order_relaxed)) {
    return "whoever asks without the lock whether there is any memory is told so";
  }
  return broken;
}

std::string_view PhysicalTable::check_invariants() {
  Locked<SpinLock> lock(lock_);
  return find_broken_invariant();
}

}  // namespace fracgpu
