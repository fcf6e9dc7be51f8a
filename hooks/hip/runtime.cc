// The rows of functions.inc as an array, for the dlsym interposer and the entry-point getters.
#include "hooks/hip/runtime.h"

namespace fracgpu::hip {

#define FRACGPU_TABLE "hooks/hip/functions.inc"
#include "shim/vendor/function_table.inc"

// The result of functions of a second HIP runtime in the process.
static int not_initialized() {
  return kNotInitialized;
}

constinit VendorLibrary runtime_library("hip",
                                        {"libamdhip64.so.7", "libamdhip64.so.6",
                                         "libamdhip64.so.5"},
                                        functions, not_initialized);

}  // namespace fracgpu::hip
