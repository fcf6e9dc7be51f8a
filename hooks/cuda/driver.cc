// The rows of functions.inc as an array, for the dlsym interposer and the entry-point getters.
#include "hooks/cuda/driver.h"

namespace fracgpu::cuda {

#define FRACGPU_TABLE "hooks/cuda/functions.inc"
#include "shim/vendor/function_table.inc"

// The result of functions of a second libcuda in the process.
static int not_initialized() {
  return kNotInitialized;
}

constinit VendorLibrary driver_library("cu", {"libcuda.so.1"}, functions, not_initialized);

}  // namespace fracgpu::cuda
