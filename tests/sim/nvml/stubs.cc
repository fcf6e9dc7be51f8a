// The rest of NVML's exported names, so that tools which look them all up find every one.
// Callers pass what each function really takes; on these calling conventions an answer that ignores
// its arguments is safe. Before nvmlInit they say so, like the others.
#include "sim/nvml/state.h"

#define SIM_STUB(name)               \
  SIM_API nvmlReturn_t name() {      \
    NVML_CALL(name);                 \
    return NVML_ERROR_NOT_SUPPORTED; \
  }
#include "sim/nvml/stubs.inc"
#undef SIM_STUB
