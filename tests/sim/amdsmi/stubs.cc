// The rest of libamd_smi's exported names; see nvml/stubs.cc. The command-line tool looks all of
// them up when it starts.
#include "sim/amdsmi/state.h"

#define SIM_STUB(name)                  \
  SIM_API amdsmi_status_t name() {      \
    SMI_CALL(name);                     \
    return AMDSMI_STATUS_NOT_SUPPORTED; \
  }
#include "sim/amdsmi/stubs.inc"
#undef SIM_STUB
