// What a runtime got from its kernel driver, by the driver's handle, until it is given back: memory
// that is charged as overhead, memory that a call requested, or objects without memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "shim/base/hash_table.h"
#include "shim/base/spin_lock.h"

namespace fracgpu {

class DriverBuffers {
 public:
  struct Entry {
    uint64_t key = 0;  // 0: no entry
    uint64_t units = 0;
    int device_index = -1;
    bool is_charged = true;  // has a charge of its own, to be given back with it
    bool is_asked = false;   // an API call requested it, whose hook accounts for it
    bool is_exported = false;
    bool is_import = false;  // memory of another process, which Process::physical has too
    int8_t pool = -1;        // a block for small allocations, of this pool (block_cache.h)
    uint32_t parent = 0;     // the driver's handle of the object that it goes with; 0: none
    uint64_t number = 0;     // set when it is first entered: later ones have higher numbers
  };

  // If the host is out of memory, it is not entered. A reading of the driver-reported usage then
  // corrects the charge once it is gone. Returns the entry that had its key before, or an empty
  // one.
  Entry enter(const Entry& buffer) {
    Locked<SpinLock> lock(lock_);
    Entry former;
    if (Entry* const known = entries_.find(buffer.key); known != nullptr) {
      former = *known;
      entries_.erase(known);
    }
    Entry* const entry = entries_.insert(buffer.key);
    if (entry == nullptr) return former;
    *entry = buffer;
    if (buffer.number == 0) entry->number = next_++;
    return former;
  }

  // Enters a new one; returns it with its number, or an empty entry if its key is known already or
  // the host is out of memory.
  Entry enter_new(const Entry& buffer) {
    Locked<SpinLock> lock(lock_);
    if (entries_.find(buffer.key) != nullptr) return {};
    Entry* const entry = entries_.insert(buffer.key);
    if (entry == nullptr) return {};
    *entry = buffer;
    entry->number = next_++;
    return *entry;
  }

  // The next one to be entered for the first time will have this number.
  uint64_t next_number() const {
    Locked<SpinLock> lock(lock_);
    return next_;
  }

  // The units of all entries of the device. Costs as much as there are entries.
  uint64_t units(int device_index) const {
    Locked<SpinLock> lock(lock_);
    uint64_t sum = 0;
    entries_.for_each([&](const Entry& each) {
      if (each.device_index == device_index) sum += each.units;
    });
    return sum;
  }

  // Removes it; returns an empty entry if it is not known.
  Entry take(uint64_t key) {
    Locked<SpinLock> lock(lock_);
    Entry* const known = entries_.find(key);
    if (known == nullptr) return {};
    const Entry taken = *known;
    entries_.erase(known);
    return taken;
  }

  // The entry with this key, or an empty one.
  Entry find(uint64_t key) const {
    Locked<SpinLock> lock(lock_);
    const Entry* const known = entries_.find(key);
    return known != nullptr ? *known : Entry{};
  }

  // One for which `condition(entry)` holds, or an empty one. Costs as much as there are entries.
  template <typename Condition>
  Entry find_if(Condition condition) const {
    Locked<SpinLock> lock(lock_);
    Entry found;
    entries_.for_each([&](const Entry& each) {
      if (found.key == 0 && condition(each)) found = each;
    });
    return found;
  }

  // Calls change(entry) for the entry with this key. False if there is none.
  template <typename Change>
  bool change(uint64_t key, Change change) {
    Locked<SpinLock> lock(lock_);
    Entry* const known = entries_.find(key);
    if (known != nullptr) change(*known);
    return known != nullptr;
  }

  // Removes entries for which `condition(entry)` holds, as many as `taken` has places for, and puts
  // them there; returns their number. Costs as much as there are entries.
  template <typename Condition>
  size_t take_if(Condition condition, std::span<Entry> taken) {
    Locked<SpinLock> lock(lock_);
    size_t count = 0;
    entries_.erase_if([&](const Entry& each) {
      if (count == taken.size() || !condition(each)) return false;
      taken[count++] = each;
      return true;
    });
    return count;
  }

  // The same of one; returns an empty entry if there is none.
  template <typename Condition>
  Entry take_if(Condition condition) {
    Entry taken;
    take_if(condition, {&taken, 1});
    return taken;
  }

 private:
  mutable SpinLock lock_;
  HashTable<Entry, 16> entries_;
  uint64_t next_ = 1;
};

}  // namespace fracgpu
