// Instruction sets: one for each GPU agent, named as the compiler's targets are.
#ifndef FRACGPU_TESTS_SIM_HSA_ISA_H_
#define FRACGPU_TESTS_SIM_HSA_ISA_H_

#include <string>

#include "hsa_runtime.h"

namespace sim {

std::string processor_name(const DeviceRow& row);  // "gfx942"
hsa_isa_t isa_of(const Agent& agent);

}  // namespace sim

#endif  // FRACGPU_TESTS_SIM_HSA_ISA_H_
