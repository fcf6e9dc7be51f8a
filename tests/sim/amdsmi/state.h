// What the simulated libamd_smi knows of its handles. Amounts and processes it asks of the copy of
// librocm_smi64 inside, by that one's public names, as the vendor's does.
#pragma once

#include "sim/amdsmi/abi.h"
#include "sim/rocmsmi/state.h"

namespace sim {

// The number among AMD's devices that a handle stands for, or -1.
int smi_device(amdsmi_processor_handle handle);
const DeviceRow& smi_row(int device);

amdsmi_status_t smi_status(rsmi_status_t status);

}  // namespace sim

#define SMI_CALL(name)                                                                         \
  do {                                                                                         \
    if (const int result = ::sim::ordered(#name)) return static_cast<amdsmi_status_t>(result); \
    if (!::sim::rsmi_ready()) return AMDSMI_STATUS_NOT_INIT;                                   \
  } while (false)

#define SMI_DEVICE(handle, device)              \
  const int device = ::sim::smi_device(handle); \
  if (device < 0) return AMDSMI_STATUS_INVAL
