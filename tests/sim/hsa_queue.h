// Queues end before the memory that their packets name.
#ifndef FRACGPU_TESTS_SIM_HSA_QUEUE_H_
#define FRACGPU_TESTS_SIM_HSA_QUEUE_H_

namespace sim {

void end_all_queues();

}  // namespace sim

#endif  // FRACGPU_TESTS_SIM_HSA_QUEUE_H_
