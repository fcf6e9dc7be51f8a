// The rest of libamd_smi's exported names; see nvml_stubs.cc. The command-line tool looks all of
// them up when it starts.
#include "amdsmi_state.h"

#define SIM_STUB(name)                  \
  SIM_API amdsmi_status_t name() {      \
    SMI_CALL(name);                     \
    return AMDSMI_STATUS_NOT_SUPPORTED; \
  }
#include "amdsmi_stubs.inc"
#undef SIM_STUB
