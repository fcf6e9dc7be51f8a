// Functions of the driver that hooks know and the simulator does not answer. Callers pass what each
// function really takes; on these calling conventions an answer that ignores its arguments is safe.
#include "sim/cuda/driver.h"

#define SIM_STUB(name)               \
  SIM_API CUresult name() {          \
    SIM_CALL(name);                  \
    return CUDA_ERROR_NOT_SUPPORTED; \
  }
#include "sim/cuda/stubs.inc"
#undef SIM_STUB
