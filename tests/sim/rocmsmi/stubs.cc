// The rest of librocm_smi64's exported names; see nvml/stubs.cc.
#include "sim/rocmsmi/state.h"

#define SIM_STUB(name)                \
  SIM_API rsmi_status_t name() {      \
    RSMI_CALL(name);                  \
    return RSMI_STATUS_NOT_SUPPORTED; \
  }
#include "sim/rocmsmi/stubs.inc"
#undef SIM_STUB
