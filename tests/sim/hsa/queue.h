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

// Before the runtime gives a device work of its own: fills, copies within the device, the caches'
// care after code was loaded. With FRACGPU_SIM_HSA_OWN_QUEUE=1 it makes a queue for that, which
// stays until the last hsa_shut_down, and reserves scratch memory for kernels where eight times as
// much is available (ROCr after 5.7, GpuAgent::ReserveScratch). False where there is no room.
bool ensure_own_queue(const Agent& agent);

}  // namespace sim
