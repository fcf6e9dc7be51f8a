// The high-water marks of the tenants. A step up and the peak it may have reached are stored by one
// compare-and-swap, so that a process killed at any instruction leaves its peak behind. A peak
// becomes a mark only when everything counted in it is known to have been alive together.
#pragma once

#include "sim/node/node_layout.h"

namespace sim {

// A living process of this row takes or returns bytes. climb() is true at a new peak, which the
// caller then has confirmed (Node::confirm_mark).
// Both are here to be inlined: every call that takes or frees memory makes one.
inline bool climb(TenantDevice& tenant, uint64_t bytes, int row) {
  Tally now = tenant.tally.load(std::memory_order_relaxed);
  Tally next;
  bool higher;
  do {
    next = now;
    next.used = now.used + bytes / kGrain;
    higher = next.used > now.peak;
    if (higher) {
      next.peak = next.used;
      next.climber = static_cast<uint64_t>(row + 1);
    }
  } while (!tenant.tally.compare_exchange_weak(now, next));
  return higher;
}

inline void descend(TenantDevice& tenant, uint64_t bytes) {
  Tally now = tenant.tally.load(std::memory_order_relaxed);
  Tally next;
  do {
    next = now;
    next.used = now.used - bytes / kGrain;
  } while (!tenant.tally.compare_exchange_weak(now, next));
}

// Takes away what the dead held. `only_row` is the row of the one process that died, or -1 when it
// was more than that. A dead row is never less than its share of the tally, whatever it was doing.
void bury(TenantDevice& tenant, uint64_t bytes, int only_row);

// No updates are running, and the rows come to this sum.
void set_recounted(TenantDevice& tenant, uint64_t bytes);

void raise_mark(TenantDevice& tenant, uint64_t bytes);

}  // namespace sim
