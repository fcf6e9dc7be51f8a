// These functions only give their name to the HSA calls below them, so that a refusal is reported
// under the name that the application called.
#include "hooks/hip/hook.h"

namespace fracgpu::hip {

#define FRACGPU_HOOKED(family, since, name, parameters)
#define FRACGPU_CALLED(family, since, name, parameters)
#define FRACGPU_NAMED(family, since, name, parameters, arguments) \
  hipError_t name parameters {                                    \
    Hook hook(#name);                                             \
    return hook.finish(real::name arguments);                     \
  }
#include "hooks/hip/functions.inc"
#undef FRACGPU_HOOKED
#undef FRACGPU_CALLED
#undef FRACGPU_NAMED

}  // namespace fracgpu::hip
