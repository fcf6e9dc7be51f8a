// The high-water marks of the tenants. A step up and the peak it may have reached are stored by one
// compare-and-swap, so that a process killed at any instruction leaves its peak behind. A peak
// becomes a mark only when everything counted in it is known to have been alive together.
#ifndef FRACGPU_TESTS_SIM_MARKS_H_
#define FRACGPU_TESTS_SIM_MARKS_H_

#include "node_layout.h"

namespace sim {

// A living process of this row takes or returns bytes. climb() is true at a new peak, which the
// caller then has confirmed (Node::confirm_mark).
bool climb(TenantDevice& tenant, uint64_t bytes, int row);
void descend(TenantDevice& tenant, uint64_t bytes);

// Takes away what the dead held. `only_row` is the row of the one process that died, or -1 when it
// was more than that. A dead row is never less than its share of the tally, whatever it was doing.
void bury(TenantDevice& tenant, uint64_t bytes, int only_row);

// No updates are running, and the rows come to this sum.
void set_recounted(TenantDevice& tenant, uint64_t bytes);

void raise_mark(TenantDevice& tenant, uint64_t bytes);

}  // namespace sim

#endif  // FRACGPU_TESTS_SIM_MARKS_H_
