// Common start of all CUDA hooks: whether to charge the call, and to which device.
#pragma once

#include "hooks/cuda/driver.h"
#include "hooks/library_hook.h"

namespace fracgpu::cuda {

using Hook = LibraryHook<driver_library>;

// The context that the calling thread used last.
struct RememberedContext {
  const Process* process = nullptr;
  uint64_t epoch = 0;  // the epoch of the process's contexts
  Context context;

  bool is(const Process& owner, CUcontext handle) const {
    return context.handle == handle && process == &owner && epoch == owner.contexts.epoch();
  }
};
[[gnu::tls_model(
    "initial-exec")]] extern constinit thread_local RememberedContext remembered_context;

// Finds the context with this handle. False if it is unknown.
[[gnu::cold]] bool look_up_context(Process& process, CUcontext handle, Context& context);
inline bool known_context(Process& process, CUcontext handle, Context& context) {
  const RememberedContext& last = remembered_context;
  if (!last.is(process, handle)) return look_up_context(process, handle, context);
  context = last.context;
  return true;
}

// The context current on this thread, with its device's index in the ledger, which is
// Process::kFault if the driver does not report the device. False if there is no context or a
// destroyed one: the driver then returns its own error.
[[gnu::cold]] bool find_current_context(Process& process, CUresult result, CUcontext handle,
                                        Context& context);
inline bool current_context(Process& process, Context& context) {
  CUcontext handle = nullptr;
  const CUresult result = real::cuCtxGetCurrent(&handle);
  if (result == kSuccess && handle == nullptr) return false;
  const RememberedContext& last = remembered_context;
  if (result != kSuccess || !last.is(process, handle))
    return find_current_context(process, result, handle, context);
  context = last.context;
  return true;
}

// The ledger's device index of a device ordinal, or Process::kNotCapped / kFault.
int device_index_of(Process& process, CUdevice device);

// Whether the driver itself refuses every call on the device: the device does not exist, or the
// driver is not yet or no longer initialized.
constexpr bool is_unusable(CUresult result) {
  return result == kNotInitialized || result == kDeinitialized || result == kNoDevice ||
         result == kInvalidDevice || result == kInvalidValue;
}

// The ordinal of the device that a location is on; negative if it is on no device. Location types
// newer than this library count as places in a device. CUDA 13.4's locality domains are such
// places: the lowest byte of their id is the device's ordinal.
constexpr CUdevice device_of(const CUmemLocation& location) {
  if (location.type == kLocationDevice) return location.id;
  const bool on_none = location.type >= kLocationNone && location.type <= kLocationHostNumaCurrent;
  return on_none ? -1 : location.id & 0xff;
}

// Drops the memory that is mapped to tiles of a sparse array that the driver has destroyed
// (vmm.cc). `serial` is the value of `Process::physical.serial()` before the destruction, because
// another array may have the handle by now.
void forget_mapped_array(Process& process, const void* array, uint64_t serial);

}  // namespace fracgpu::cuda
