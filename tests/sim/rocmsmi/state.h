// What the simulated librocm_smi64 keeps: a count of initialisations and the opened node. It only
// looks. libamd_smi has a copy of all of it inside, with a state of its own.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sim/node/inject.h"
#include "sim/node/node.h"
#include "sim/rocmsmi/abi.h"

namespace sim {

bool rsmi_ready();
bool rsmi_is_old();  // knows nothing of partitions
rsmi_status_t copy_text(const std::string& text, char* to, uint32_t length);
Node& rsmi_node();
// Those whose nodes in KFD's topology can be read, in the order of their bus ids, which is the
// node's (rocm_smi_main.cc sorts them so). They are numbered in this order.
std::vector<int> rsmi_devices();
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
