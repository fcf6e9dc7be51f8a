// Memory that a runtime got from its kernel driver for itself, which is charged as overhead. By the
// driver's handle, until it is given back.
#pragma once

#include <cstdint>

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
  };

  // If the host is out of memory, it is not entered. A reading of the driver-reported usage then
  // corrects the charge once it is gone.
  void enter(const Entry& buffer) {
    Locked<SpinLock> lock(lock_);
    if (Entry* const known = entries_.find(buffer.key); known != nullptr) entries_.erase(known);
    if (Entry* const entry = entries_.insert(buffer.key); entry != nullptr) *entry = buffer;
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

 private:
  SpinLock lock_;
  HashTable<Entry, 16> entries_;
};

}  // namespace fracgpu
