// The real libamd_smi, in whichever version the process has loaded; see hooks/smi/nvml/library.h.
#pragma once

#include <atomic>

#include "hooks/smi/amdsmi/abi.h"
#include "hooks/smi/amdsmi/layout.h"
#include "hooks/usage/kfd_usage.h"
#include "shim/vendor/real_function.h"
#include "shim/vendor/vendor_library.h"

namespace fracgpu::amdsmi {

extern VendorLibrary library;

// The loaded library's version. 0 if the hooks do not know it, which is reported once. Such a
// library's answers pass on unchanged.
uint32_t known_version();

// The ledger's key of a device. False if the library does not identify it, which is reported once.
bool key_of(amdsmi_processor_handle handle, kfd::Key& key);

#define FRACGPU_TABLE "hooks/smi/amdsmi/functions.inc"
#define FRACGPU_RESULT amdsmi_status_t
#define FRACGPU_MISSING kNotInitialized
#include "shim/vendor/function_prototypes.inc"

}  // namespace fracgpu::amdsmi
