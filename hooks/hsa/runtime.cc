// The table of functions.inc as an array, for the dlsym interposer.
#include "hooks/hsa/runtime.h"

namespace fracgpu::hsa {

#define FRACGPU_TABLE "hooks/hsa/functions.inc"
#include "shim/vendor/function_table.inc"

constinit VendorLibrary runtime_library("hsa_", {"libhsa-runtime64.so.1"}, functions);

}  // namespace fracgpu::hsa
