// Instruction sets: one for each GPU agent, named as the compiler's targets are.
#pragma once

#include <string>

#include "sim/hsa/runtime.h"

namespace sim {

std::string processor_name(const DeviceRow& row);  // "gfx942"
hsa_isa_t isa_of(const Agent& agent);

}  // namespace sim
