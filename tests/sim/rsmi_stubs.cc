// The rest of librocm_smi64's exported names; see nvml_stubs.cc.
#include "rsmi_state.h"

#define SIM_STUB(name)                \
  SIM_API rsmi_status_t name() {      \
    RSMI_CALL(name);                  \
    return RSMI_STATUS_NOT_SUPPORTED; \
  }
#include "rsmi_stubs.inc"
#undef SIM_STUB
