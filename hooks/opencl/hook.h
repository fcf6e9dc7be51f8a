// What every OpenCL hook begins with: is this call ours to charge, and on which devices?
#pragma once

#include "hooks/library_hook.h"
#include "hooks/opencl/icd.h"
#include "shim/charge/refusal.h"

namespace fracgpu::opencl {

using Hook = LibraryHook<icd_library>;

// The ledger's index of a device, or Process::kNotCapped / kFault. Device memory is the same for
// CUDA, whose key of the device this is too.
int device_index_of(Process& process, cl_device_id device);

// Those of the devices that are capped. `is_faulty`: nothing may be allocated on one of them.
Devices devices_of(Process& process, size_t count, const cl_device_id* devices, bool& is_faulty);

// The context, if it is known or the ICD knows it; null where none of its devices is capped.
DeferredMemory::Context* context_of(Process& process, cl_context context);

// Returns null, and the error if the caller wants it.
inline std::nullptr_t refuse(cl_int* error, cl_int result) {
  if (error != nullptr) *error = result;
  return nullptr;
}

// Makes a block of that size, charged on each of the context's devices. Null: refused.
DeferredMemory::Block* make_block(Process& process, DeferredMemory::Context& context,
                                  const DeferredMemory::Size& size, const AskingCall& call);
// Gives its charge back; or makes it overhead, if the driver frees its memory later.
void drop_block(Process& process, DeferredMemory::Block* block);
void drop_block_later(Process& process, DeferredMemory::Block* block);

// How long a refusal waits for the ICD's own thread, which frees what was released.
inline constexpr uint64_t kLongestFree_ms = 100;

// Gives back the charge of contexts that have ended.
void settle_ended_contexts(Process& process);
// Whether a context was released or ended so recently that the driver may still have its memory.
bool context_is_leaving(Process& process);

}  // namespace fracgpu::opencl
