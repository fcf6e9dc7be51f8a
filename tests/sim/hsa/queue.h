// Queues as the calls that make them share them. Each ends before the memory that its packets name.
#pragma once

#include "sim/hsa/abi.h"

namespace sim {

// A compute queue of `size` packets on the agent. `private_segment`: bytes that each thread of its
// kernels has of its own, or UINT32_MAX for none yet.
hsa_status_t make_queue(hsa_agent_t agent, uint32_t size, hsa_queue_type32_t type,
                        uint32_t private_segment, hsa_queue_t** out);
bool end_queue(const hsa_queue_t* queue);  // false: there is none such

void end_all_queues();

}  // namespace sim
