// The real librocm_smi64, of whichever version the process has loaded; see
// hooks/smi/nvml/library.h.
//
// libamd_smi of ROCm 6 has a copy of it inside and calls it by its public names, so those calls
// arrive at our exports. They must go on to that copy, which has its own state: `copy` has its
// functions, and `select` chooses by where a call comes from.
#pragma once

#include <atomic>

#include "hooks/smi/rocmsmi/abi.h"
#include "hooks/usage/kfd_usage.h"
#include "shim/vendor/real_function.h"
#include "shim/vendor/vendor_library.h"

namespace fracgpu::rocmsmi {

extern VendorLibrary library;

#define FRACGPU_TABLE "hooks/smi/rocmsmi/functions.inc"
#define FRACGPU_RESULT rsmi_status_t
#define FRACGPU_MISSING kNotInitialized
#include "shim/vendor/function_prototypes.inc"

namespace copy {
#define FRACGPU_TABLE "hooks/smi/rocmsmi/functions.inc"
#define FRACGPU_RESULT rsmi_status_t
#define FRACGPU_MISSING kNotInitialized
#include "shim/vendor/function_prototypes.inc"
}  // namespace copy

// Whether a call that returns to `caller` was made by libamd_smi to its own copy.
bool is_for_copy(const void* caller);

// The ledger's key of a device. False, which is reported once, when the library's version is not
// known or the library does not identify the device.
bool key_of(uint32_t device, kfd::Key& key);

// False for a library whose version is not known: its answers are passed on unchanged.
bool is_known();

}  // namespace fracgpu::rocmsmi
