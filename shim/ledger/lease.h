// Revokes leases: what processes may hold without asking.
#pragma once

#include "fracgpu/ledger_layout.h"

namespace fracgpu {

// Sets the cell's lease to 0.
inline void revoke(layout::Cell& cell) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  uint64_t word = cell.held_and_lease.load(kRelaxed);
  while (layout::lease_of(word) > 0 &&
         !cell.held_and_lease.compare_exchange_weak(word, layout::pack(layout::held_of(word), 0),
                                                    kRelaxed)) {
  }
}

}  // namespace fracgpu
