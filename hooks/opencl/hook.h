// Common start of all OpenCL hooks: whether to charge the call, and to which devices.
#pragma once

#include "hooks/library_hook.h"
#include "hooks/opencl/icd.h"
#include "shim/charge/refusal.h"

namespace fracgpu::opencl {

using Hook = LibraryHook<icd_library>;

// The ledger's index of a device, or Process::kNotCapped / kFault. The device has the same key and
// the same memory under CUDA.
int device_index_of(Process& process, cl_device_id device);

// The capped ones among the devices. Sets `is_faulty` if nothing may be allocated on one of them.
Devices devices_of(Process& process, size_t count, const cl_device_id* devices, bool& is_faulty);

// The context, if this process or the ICD knows it. Null if none of its devices is capped.
DeferredMemory::Context* context_of(Process& process, cl_context context);

// Returns null, and the error if the caller wants it.
inline std::nullptr_t refuse(cl_int* error, cl_int result) {
  if (error != nullptr) *error = result;
  return nullptr;
}

// Makes a block of that size, and charges it on each of the context's devices. Null if it is
// refused.
DeferredMemory::Block* make_block(Process& process, DeferredMemory::Context& context,
                                  const DeferredMemory::Size& size, const AskingCall& call);
// `drop_block` gives the block's charge back. `drop_block_later` turns the charge into overhead,
// for memory that the driver frees later.
void drop_block(Process& process, DeferredMemory::Block* block);
void drop_block_later(Process& process, DeferredMemory::Block* block);

// How long a refusal waits for the ICD's own thread, which frees released objects.
inline constexpr uint64_t kLongestFree_ms = 1000;

// Gives back the charge of contexts that have ended.
void settle_ended_contexts(Process& process);
// Whether a context was released or ended so recently that the driver may still hold its memory.
bool context_is_leaving(Process& process);

}  // namespace fracgpu::opencl
