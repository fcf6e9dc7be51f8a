// What the simulated librocm_smi64 keeps: a count of initialisations and the opened node. It only
// looks. libamd_smi has a copy of all of it inside, with a state of its own.
#pragma once

#include <map>
#include <vector>

#include "sim/node/inject.h"
#include "sim/node/node.h"
#include "sim/rocmsmi/abi.h"

namespace sim {

bool rsmi_ready();
Node& rsmi_node();
// The node's number of a device, or -1.
int rsmi_device(uint32_t device);

// What every living process that has opened AMD's kernel driver holds, in all on each device of
// this vendor.
std::map<uint32_t, std::vector<uint64_t>> rsmi_processes();

}  // namespace sim

#define RSMI_CALL(name)                                                                      \
  do {                                                                                       \
    if (const int result = ::sim::ordered(#name)) return static_cast<rsmi_status_t>(result); \
    if (!::sim::rsmi_ready()) return RSMI_STATUS_INIT_ERROR;                                 \
  } while (false)

#define RSMI_DEVICE(number, dev)              \
  const int dev = ::sim::rsmi_device(number); \
  if (dev < 0) return RSMI_STATUS_INVALID_ARGS
