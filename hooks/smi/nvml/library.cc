// The rows of functions.inc as an array, for the dlsym interposer.
#include "hooks/smi/nvml/library.h"

namespace fracgpu::nvml {

#define FRACGPU_TABLE "hooks/smi/nvml/functions.inc"
#include "shim/vendor/function_table.inc"

constinit VendorLibrary library("nvml", {"libnvidia-ml.so.1"}, functions);

}  // namespace fracgpu::nvml
