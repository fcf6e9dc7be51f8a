// The device memory that code takes once it is loaded, in units. By the handle of what a program
// has announced and may load later: a library (CUlibrary), a code object reader.
#pragma once

#include <cstdint>

#include "shim/base/hash_table.h"
#include "shim/base/spin_lock.h"

namespace fracgpu {

class CodeSizes {
 public:
  // Remembers nothing for an unknown size (0), or if the host is out of memory.
  void enter(uint64_t handle, uint64_t units) {
    if (handle == 0) return;
    Locked<SpinLock> lock(lock_);
    if (Entry* const known = sizes_.find(handle); known != nullptr) sizes_.erase(known);
    if (units == 0) return;
    if (Entry* const entry = sizes_.insert(handle); entry != nullptr) entry->units = units;
  }
  // 0 if it is not known.
  uint64_t find(uint64_t handle) {
    Locked<SpinLock> lock(lock_);
    const Entry* const entry = handle != 0 ? sizes_.find(handle) : nullptr;
    return entry != nullptr ? entry->units : 0;
  }
  void forget(uint64_t handle) { enter(handle, 0); }

 private:
  struct Entry {
    uint64_t key;
    uint64_t units;
  };

  SpinLock lock_;
  HashTable<Entry, 16> sizes_;
};

}  // namespace fracgpu
