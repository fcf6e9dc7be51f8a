// The table of functions.inc as an array, for the doors.
#include "hooks/nvml/library.h"

namespace fracgpu::nvml {

#define FRACGPU_TABLE "hooks/nvml/functions.inc"
#include "shim/vendor_array.inc"

constinit VendorLibrary library("nvml", {"libnvidia-ml.so.1"}, functions);

}  // namespace fracgpu::nvml
