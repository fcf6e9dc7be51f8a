// The real librocm_smi64, in whichever version the process has loaded; see
// hooks/smi/nvml/library.h.
//
// libamd_smi of ROCm 6 contains a copy of it and calls that copy by its public names, so those
// calls arrive at our exports. They must go on to the copy, which has its own state. `copy` has the
// copy's functions, and `is_for_copy` chooses by the caller's address.
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

// Whether libamd_smi made a call that returns to `caller`, and meant its own copy. Also true if
// only the copy is loaded.
bool is_for_copy(const void* caller);

// The ledger's key of a device. False if the library's version is not known, or if the library does
// not identify the device. Either is reported once.
bool key_of(uint32_t device, kfd::Key& key);

// False if the library's version is not known. Its answers then pass on unchanged.
bool is_known();

}  // namespace fracgpu::rocmsmi
