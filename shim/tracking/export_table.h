// The numbers under which the ledger lists this process's exports (Ledger::list_export), by their
// tokens in OpenExports.
#pragma once

#include <cstdint>

#include "shim/base/hash_table.h"
#include "shim/base/sleep_lock.h"

namespace fracgpu {

// Used with `lock` held, which also covers the changes of the ledger that belong together. Amounts
// are units.
class ExportTable {
 public:
  struct Export {
    uint64_t key;  // the token
    uint64_t units;
    uint32_t number;  // 0: not listed
  };

  uint32_t number_of(uint64_t token) const {
    const Export* const known = exports_.find(token);
    return known != nullptr ? known->number : 0;
  }
  // The token's entry, without units if it is new. Null if the host is out of memory.
  Export* enter(uint64_t token) { return exports_.insert(token); }
  // `units` of what the token stands for were freed. Returns the number.
  uint32_t take(uint64_t token, uint64_t units) {
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

  SleepLock lock;

 private:
  HashTable<Export, 8> exports_;
};

}  // namespace fracgpu
