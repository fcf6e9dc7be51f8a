// Device memory that is made, mapped and released by separate calls (CUDA's and HIP's virtual
// memory management): the memory of each handle, where it is mapped, and when its last use is gone.
//
// Memory is free when no reference to a handle, no mapping and no binding of it is left, in
// whatever order they go: NCCL and PyTorch release the handle while the memory stays mapped. Uses
// are dropped after the driver's call, by the memory's number and not by its handle or address: the
// driver may have given those to another thread meanwhile. So a handle is given up before the call.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "fracgpu/ledger_layout.h"
#include "shim/base/hash_table.h"
#include "shim/base/invariants.h"
#include "shim/base/spin_lock.h"
#include "shim/sharing/import_source.h"
#include "shim/tracking/busy_stream.h"

namespace fracgpu {

class PhysicalTable {
 public:
  // Memory whose last use is gone: its number (0: it has other uses) and its charge.
  struct Freed {
    uint64_t memory = 0;
    uint64_t units = 0;
    uint64_t imported = 0;  // units that are charged to another process
    ImportSource source{};  // of an import
    int device_index = 0;
    bool exported = false;
    bool lingers = false;  // the driver may unmap it later
  };

  // Adds new memory, with `handle` as its first reference. `units` are its charge; 0 for memory
  // that costs nothing here: a multicast object, or an import, which is charged to another process.
  // `source` is an import's; its `handle` may be the address at which it was opened. If the handle
  // is already known, it stands for the new memory from now on: the driver gave its value out
  // again, and the old memory keeps its other uses and its charge. False, with nothing added, if
  // the host is out of memory.
  bool add(uint64_t handle, uint64_t units, int device_index, ImportSource source = {});

  // The number of the memory that a handle stands for or that is mapped at an address; 0: unknown.
  // `probes` counts the look-ups for an address: at most three per power of two among the mappings'
  // sizes so far.
  uint64_t memory_of(uint64_t handle);
  uint64_t memory_at(uint64_t address, unsigned* probes = nullptr);

  // Marks memory of this process as exported, and returns its charge. True the first time.
  bool mark_exported(uint64_t memory, Freed& charge);

  // Often only the mapped size of an import is known: notes that it has at least `units`. Returns
  // its device index, its source, and in `imported` how many units are new.
  Freed note_import(uint64_t memory, uint64_t units);

  // Adds a reference to the memory by this handle, which may be a new one.
  void add_reference(uint64_t handle, uint64_t memory);
  // The same for the memory that the handle stands for. False if it is not known, or given up: then
  // the driver has given its value out again. The same holds if it is known to be of another
  // source.
  bool add_reference(uint64_t handle, ImportSource source = {});
  // Whether the handle is known and not given up.
  bool is_referenced(uint64_t handle);

  // For a reference by this handle that is about to be released. Returns the number of the memory,
  // or 0. Call `drop_reference` once it is released, or `keep_reference` if the driver has refused.
  uint64_t give_up_reference(uint64_t handle);
  void keep_reference(uint64_t handle, uint64_t memory);
  Freed drop_reference(uint64_t memory);

  // Adds a use with this `key`: the address of a mapping of `size` bytes, which has no owner, or a
  // key made by `binding_key`. It goes by drop_mappings, or with its `owner` (an array, a multicast
  // object). An earlier use with the key is gone, since the driver maps nothing over a mapping; if
  // `busy` is a stream, once its work is done. `context`: the id of the array's context, with which
  // it goes too.
  Freed add_mapping(uint64_t key, uint64_t size, uint64_t memory, uint64_t owner = 0,
                    uint16_t context = 0, const BusyStream& busy = {});

  // Drops the mappings that begin in [key, key + size) and are not younger than `serial`, the
  // result of `serial()` before the driver was called. Calls freed(const Freed&) for each memory
  // whose last use that was. If `busy` is a stream, they stay uses of their memory until its work
  // is done. `drop_owned`: the same for the mappings with this owner.
  template <typename Visit>
  void drop_mappings(uint64_t key, uint64_t size, uint64_t serial, Visit freed,
                     const BusyStream& busy = {});
  template <typename Visit>
  void drop_owned(uint64_t owner, uint64_t serial, Visit freed) {
    drop_mappings_that(
        [&](const Mapping& each) { return each.owner == owner && each.serial <= serial; }, freed);
  }
  bool is_mapped(uint64_t key);
  // The driver may drop the mapping with this key, or all of this owner, after its call has
  // returned: their memory lingers after its last use.
  void linger(uint64_t key);
  void linger_owned(uint64_t owner);
  template <typename Visit>
  void drop_context(uint16_t context, Visit freed) {
    drop_mappings_that([&](const Mapping& each) { return each.context == context; }, freed);
    drop_unmaps_that(
        [&](const Unmap& each) {
          return each.context == context || each.stream.context == context;
        },
        false, freed);
  }

  // Whether unmappings wait in any stream, or in this one. (`any_unmaps` takes no lock.)
  bool any_unmaps() const { return unmaps_waiting_.load(std::memory_order_relaxed) != 0; }
  bool has_unmaps(uint64_t stream);
  // Asks each stream in which unmappings wait, and drops their uses if its work is done. Calls
  // freed() for each memory whose last use that was. It lingers if the driver cannot be asked.
  template <typename Visit>
  void finish_unmaps(Visit freed);
  // The stream is about to be destroyed. What waits in it lingers.
  template <typename Visit>
  void forget_stream(uint64_t stream, Visit freed) {
    drop_unmaps_that([&](const Unmap& each) { return each.stream.number == stream; }, true, freed);
  }
  uint64_t serial();

  // The owner key of memory itself, for a multicast object.
  static constexpr uint64_t owner_key(uint64_t memory) { return uint64_t{1} << 63 | memory; }

  // A key that no address can be, for memory that is bound at an offset of an object on a device.
  // From the top: a set and a clear bit, 26 bits of the object, 7 of the device's ordinal in this
  // process, which is below Process::kSlotsOfVendor, and 29 of the offset, which reach 32 TiB.
  static constexpr uint64_t binding_key(uint64_t object, int ordinal, uint64_t offset) {
    return uint64_t{1} << 63 | (object & 0x3ffffff) << 36 |
           static_cast<uint64_t>(ordinal & 127) << 29 | (offset / kBindingStep & 0x1fffffff);
  }
  static constexpr uint64_t kBindingStep = 1 << 16;

  // The kernel driver's object of the memory is gone. If other uses are left, they alone keep the
  // memory.
  void note_object_gone(uint64_t memory);

  // What is charged on a device index.
  struct Sum {
    uint64_t units = 0;
    uint64_t unmapped = 0;        // of `units`: a busy stream unmaps it, or has just done so
    uint64_t without_object = 0;  // of the rest: kept without the kernel driver's object
    uint64_t changes = 0;         // differs from an earlier value if anything came or went
  };
  Sum sum(int device_index);

  // Calls visit(memory, units, device_index) for every memory that is charged here. The table is
  // locked meanwhile.
  template <typename Visit>
  void for_each(Visit visit) {
    Locked<SpinLock> lock(lock_);
    memories_.for_each([&](const Memory& memory) {
      if (memory.units > 0) visit(memory.key, memory.units, int{memory.device_index});
    });
  }

  // The number of charged memories on a device index.
  uint64_t count(int device_index);

  // The first invariant that does not hold, in words, or nothing; see base/invariants.h.
  std::string_view check_invariants();

 private:
  friend class InvariantScope<PhysicalTable>;
  friend struct TableCorrupter;  // a unit test, which breaks each invariant
  std::string_view find_broken_invariant() const;
  size_t slots() const { return handles_.slots() + memories_.slots() + mappings_.slots(); }

  struct Handle {
    uint64_t key;  // the driver's handle
    uint64_t memory;
    uint64_t references;  // by it; 0: given up, although the memory is still mapped
  };
  struct Memory {
    uint64_t key;     // its number
    uint64_t handle;  // the first one; `aliased` if there were others
    uint64_t units;
    uint64_t imported;
    uint32_t uses;
    uint32_t unmaps;  // of `uses`: mappings whose end waits in a stream
    uint8_t device_index;
    ImportSource source;
    bool aliased;
    bool exported;
    bool has_no_object;
    bool lingers;
  };
  struct Mapping {
    uint64_t key;
    uint64_t size;
    uint64_t memory;
    uint64_t owner;
    uint64_t serial;
    uint16_t context;  // 0: outlives contexts
  };
  // A mapping that ends when the work in its stream is done.
  struct Unmap {
    uint64_t key;  // its serial
    uint64_t memory;
    BusyStream stream;
    uint16_t context;  // of the mapping
  };

  // Erases the entries of the table for which is(entry) is true. drop(entry) drops their uses.
  template <typename Table, typename Is, typename Drop, typename Visit>
  void drop_that(Table& table, Is is, Drop drop, Visit freed);
  template <typename Is, typename Visit>
  void drop_mappings_that(Is is, Visit freed);
  template <typename Is, typename Visit>
  void drop_unmaps_that(Is is, bool lingers, Visit freed);

  // The beginning of a mapping of an address, by `begin_key`.
  struct Begin {
    uint64_t key;
    uint64_t begin;
  };

  // Mappings of 2^order up to 2^(order+1) bytes do not overlap, so at most one of them begins in
  // each aligned block of 2^order bytes. The mapping that contains an address begins in the
  // address's own block or in one of the two below.
  static constexpr int kPageOrder = 12;  // nothing is mapped by less than a page
  static int order_of(uint64_t size) {
    return std::max(static_cast<int>(std::bit_width(size)) - 1, kPageOrder);
  }
  static uint64_t begin_key(uint64_t block, int order) {
    return block << 6 | static_cast<uint64_t>(order);
  }

  Freed drop_use(uint64_t memory);
  Freed drop_use_after(const BusyStream& busy, uint64_t memory, uint16_t context);
  Freed drop_use_of(const Unmap& unmap, bool lingers);
  size_t busy_streams(BusyStream* streams, size_t most);
  Handle* find_referenced(uint64_t handle);
  void refer(uint64_t handle, uint64_t memory);
  bool enter_begin(uint64_t key, uint64_t size);  // false if the host is out of memory
  void forget_begin(const Mapping& mapping);
  uint64_t step() const { return granules_ & -granules_; }

  SpinLock lock_;
  std::atomic<bool> any_{false};  // there was a handle; every free in stream order asks
  HashTable<Handle, 16> handles_;
  HashTable<Memory, 16> memories_;
  HashTable<Mapping, 16> mappings_;
  HashTable<Begin, 16> begins_;  // of the mappings of addresses
  HashTable<Unmap, 8> unmaps_;
  std::atomic<size_t> unmaps_waiting_{0};  // their number, written with the lock held
  uint64_t next_ = 1;
  uint64_t serial_ = 1;
  uint64_t changes_ = 0;
  uint64_t granules_ = 0;  // all addresses and sizes of mappings, or-ed
  uint64_t orders_ = 0;    // a bit for each order among the mappings so far
  uint64_t units_[layout::kMaxDevices] = {};
  uint64_t without_object_[layout::kMaxDevices] = {};  // of `units_`
  uint64_t count_[layout::kMaxDevices] = {};           // of charged memories
  [[no_unique_address]] InvariantTimer timer_;
};

template <typename Visit>
void PhysicalTable::drop_mappings(uint64_t key, uint64_t size, uint64_t serial, Visit freed,
                                  const BusyStream& busy) {
  const bool binding = key >> 63 != 0;
  uint64_t left = binding ? size / kBindingStep : size;
  while (left > 0) {
    Freed gone;
    uint64_t stride = 1;
    {
      Locked<SpinLock> lock(lock_);
      const InvariantScope scope(*this, timer_);
      stride = binding ? 1 : step();
      if (stride == 0) return;  // nothing was ever mapped
      Mapping* mapping = mappings_.find(key);
      if (mapping != nullptr && mapping->serial <= serial) {
        stride = binding ? mapping->size / kBindingStep : mapping->size;
        gone = drop_use_after(busy, mapping->memory, mapping->context);
        if (!binding) forget_begin(*mapping);
        mappings_.erase(mapping);
      }
    }
    if (gone.memory != 0) freed(gone);
    if (stride == 0 || stride >= left) return;
    key += stride;
    left -= stride;
  }
}

template <typename Table, typename Is, typename Drop, typename Visit>
void PhysicalTable::drop_that(Table& table, Is is, Drop drop, Visit freed) {
  for (bool found = true; found;) {
    found = false;
    Freed gone;
    {
      Locked<SpinLock> lock(lock_);
      const InvariantScope scope(*this, timer_);
      // One at a time: freed memory must be given back without the lock.
      table.erase_if([&](const auto& each) {
        if (found || !is(each)) return false;
        found = true;
        gone = drop(each);
        return true;
      });
    }
    if (gone.memory != 0) freed(gone);
  }
}

template <typename Is, typename Visit>
void PhysicalTable::drop_mappings_that(Is is, Visit freed) {
  drop_that(
      mappings_, is, [&](const Mapping& mapping) { return drop_use(mapping.memory); }, freed);
}

template <typename Is, typename Visit>
void PhysicalTable::drop_unmaps_that(Is is, bool lingers, Visit freed) {
  if (any_unmaps())
    drop_that(
        unmaps_, is, [&](const Unmap& unmap) { return drop_use_of(unmap, lingers); }, freed);
}

template <typename Visit>
void PhysicalTable::finish_unmaps(Visit freed) {
  BusyStream streams[16];  // the others wait for the next call
  const uint64_t asked = serial();
  const size_t count = busy_streams(streams, std::size(streams));
  for (size_t i = 0; i < count; ++i) {
    const BusyStream& stream = streams[i];
    const BusyStream::Outcome outcome = stream.ask(stream);
    if (outcome == BusyStream::Outcome::waits) continue;
    drop_unmaps_that([&](const Unmap& each) { return each.key <= asked && each.stream == stream; },
                     outcome == BusyStream::Outcome::unknown, freed);
  }
}

}  // namespace fracgpu
