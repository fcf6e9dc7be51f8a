// The rows of functions.inc as an array, for the dlsym interposer.
#include "hooks/hsa/runtime.h"

namespace fracgpu::hsa {

#define FRACGPU_TABLE "hooks/hsa/functions.inc"
#include "shim/vendor/function_table.inc"

// The result of functions of a second HSA runtime in the process.
static int not_initialized() {
  return kNotInitialized;
}

constinit VendorLibrary runtime_library("hsa_", {"libhsa-runtime64.so.1"}, functions,
                                        not_initialized);

}  // namespace fracgpu::hsa
