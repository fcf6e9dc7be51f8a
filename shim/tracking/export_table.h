// The numbers under which the ledger lists this process's exports (Ledger::list_export), by their
// tokens in OpenExports.
#pragma once

#include <cstdint>

#include "shim/base/hash_table.h"
#include "shim/base/spin_lock.h"

namespace fracgpu {

// Any thread may call any function. Amounts are units.
class ExportTable {
 public:
  // 0: not listed.
  uint32_t number_of(uint64_t token) {
    const Locked<SpinLock> lock(lock_);
    const Export* const known = exports_.find(token);
    return known != nullptr ? known->number : 0;
  }
  // `units` more of what this token stands for are listed: memory may be exported at the address of
  // memory that a descriptor still holds. False if the host is out of memory.
  bool add(uint64_t token, uint32_t number, uint64_t units) {
    const Locked<SpinLock> lock(lock_);
    Export* const entry = exports_.insert(token);
    if (entry == nullptr) return false;
    entry->number = number;
    entry->units += units;
    return true;
  }
  // `units` of it were freed. Returns the number.
  uint32_t take(uint64_t token, uint64_t units) {
    const Locked<SpinLock> lock(lock_);
    Export* const known = exports_.find(token);
    if (known == nullptr) return 0;
    const uint32_t number = known->number;
    if (known->units <= units) {
      exports_.erase(known);
    } else {
      known->units -= units;
    }
    return number;
  }

 private:
  struct Export {
    uint64_t key;  // the token
    uint64_t units;
    uint32_t number;
  };

  SpinLock lock_;
  HashTable<Export, 8> exports_;
};

}  // namespace fracgpu
