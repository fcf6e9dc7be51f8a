// Libraries (CUlibrary) from which code was loaded, by context: no later use loads more.
#pragma once

#include <cstdint>

#include "shim/base/hash_table.h"
#include "shim/base/spin_lock.h"

namespace fracgpu {

class LibraryTable {
 public:
  bool is_loaded(const void* library, uint16_t context) {
    Locked<SpinLock> lock(lock_);
    return loaded_.find(key_of(library, context)) != nullptr;
  }
  // If the host is out of memory, the next use counts as the first one again.
  void enter(const void* library, uint16_t context) {
    Locked<SpinLock> lock(lock_);
    loaded_.insert(key_of(library, context));
  }
  void forget(const void* library) {
    Locked<SpinLock> lock(lock_);
    loaded_.erase_if(
        [&](const Entry& entry) { return entry.key << 16 == key_of(library, 0) << 16; });
  }
  void forget_context(uint16_t context) {
    Locked<SpinLock> lock(lock_);
    loaded_.erase_if([&](const Entry& entry) { return entry.key >> 48 == context; });
  }

 private:
  struct Entry {
    uint64_t key;
  };

  // Handles are pointers, of less than 48 bits.
  static uint64_t key_of(const void* library, uint16_t context) {
    return (reinterpret_cast<uint64_t>(library) & ~uint64_t{0} >> 16) | uint64_t{context} << 48;
  }

  SpinLock lock_;
  HashTable<Entry, 16> loaded_;
};

}  // namespace fracgpu
