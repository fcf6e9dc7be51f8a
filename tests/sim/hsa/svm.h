// Shared virtual memory that lies on a device. The runtime's lock is held by whoever calls.
#pragma once

#include "sim/hsa/runtime.h"

namespace sim {

// Moves all of it away from the device, and says whether there was any.
bool evict_svm(const Agent& agent);

}  // namespace sim
