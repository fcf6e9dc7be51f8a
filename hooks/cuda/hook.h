// What every CUDA hook begins with: is this call ours to charge, and on which device?
#pragma once

#include "hooks/cuda/driver.h"
#include "hooks/library_hook.h"

namespace fracgpu::cuda {

using Hook = LibraryHook<driver_library>;

// The context current on this thread, with its device's index in the ledger: Process::kFault where
// the driver does not report it. False when there is none: the driver then returns its own error.
bool current_context(Process& process, Context& context);

// The context of this handle, if it is known.
bool known_context(Process& process, CUcontext handle, Context& context);

// The ledger's device index of a device ordinal, or Process::kNotCapped / kFault.
int device_index_of(Process& process, CUdevice device);

// Whether the driver refuses every call on the device by itself: there is no such device, or no
// driver yet or any more.
constexpr bool is_unusable(CUresult result) {
  return result == kNotInitialized || result == kDeinitialized || result == kNoDevice ||
         result == kInvalidDevice || result == kInvalidValue;
}

// The ordinal of the device that a location is on; below 0: it is on none. Kinds that are newer
// than this library are treated as places in a device, as a locality domain is (CUDA 13.4), of
// whose id the lowest byte is the device's ordinal.
constexpr CUdevice device_of(const CUmemLocation& location) {
  if (location.type == kLocationDevice) return location.id;
  const bool on_none = location.type >= kLocationNone && location.type <= kLocationHostNumaCurrent;
  return on_none ? -1 : location.id & 0xff;
}

// Drops the memory that is mapped to tiles of a sparse array which the driver has destroyed
// (vmm.cc).
void forget_mapped_array(Process& process, const void* array);

}  // namespace fracgpu::cuda
