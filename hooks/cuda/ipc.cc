// Memory shared by IPC handles is charged to the exporter. After the exporter's death it stays
// charged to its tenant as long as a process under a cap has the memory open. The importer is never
// charged.
#include "hooks/cuda/streams.h"
#include "shim/charge/linear.h"
#include "shim/charge/vmm_calls.h"

namespace fracgpu::cuda {
namespace {

// Enters the memory opened at `pointer`, with its size, as memory that is charged to another
// process.
void enter_opened(Process& process, ImportCall& call, CUdeviceptr pointer) {
  Context context;
  CUdeviceptr base = 0;
  size_t bytes = 0;
  const OwnCalls own_calls(process);
  if (current_context(process, context) &&
      real::cuMemGetAddressRange_v2(&base, &bytes, pointer) == kSuccess) {
    call.imported(pointer, context.device_index, linear_size(bytes).units);
  }
}

// A handle of an address within an allocation exports the whole allocation. Returns its entry; an
// empty one if it is not known.
Allocation export_allocation_around(Process& process, CUdeviceptr pointer) {
  Allocation entry;
  note_exported_allocation(process, pointer, entry);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  if (entry.key == 0 && on_own_account(process, [&] {
                          return real::cuMemGetAddressRange_v2(&base, &bytes, pointer);
                        }) == kSuccess) {
    note_exported_allocation(process, base, entry);
  }
  return entry;
}

template <typename Real>
CUresult open(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned int flags, const Real& real) {
  Hook hook;
  if (!hook.active() || pointer == nullptr) return real(pointer, handle, flags);
  ImportCall call(hook.process(), &handle, sizeof handle);
  const CUresult result = real(pointer, handle, flags);
  if (result == kSuccess) enter_opened(hook.process(), call, *pointer);
  return result;
}

}  // namespace

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr pointer) {
  Hook hook;
  const CUresult result = real::cuIpcGetMemHandle(handle, pointer);
  if (result != kSuccess || !hook.active()) return result;
  const Allocation entry = export_allocation_around(hook.process(), pointer);
  note_handle(hook.process(), handle, sizeof *handle, token_of(entry));
  return result;
}

// A dma-buf holds the memory as long as it is open, or as a driver of another device uses it
// (nv-dmabuf.c of the open modules 535.261.03).
CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr pointer, size_t size,
                                       int handle_type, unsigned long long flags) {
  Hook hook;
  const CUresult result =
      real::cuMemGetHandleForAddressRange(handle, pointer, size, handle_type, flags);
  if (result != kSuccess || !hook.active() || handle_type != kDmaBuf) return result;
  Process& process = hook.process();
  const int fd = *static_cast<const int*>(handle);
  if (const Allocation entry = export_allocation_around(process, pointer); entry.units > 0) {
    note_descriptor(process, fd, entry.units, token_of(entry));
    return result;
  }
  // Each memory that is mapped there.
  uint64_t last = 0;
  for (CUdeviceptr at = pointer; at < pointer + size; at = (at / kPageBytes + 1) * kPageBytes) {
    PhysicalTable::Freed charge;
    const uint64_t memory = process.physical.memory_at(at);
    if (memory != last && note_exported_memory(process, memory, charge))
      note_descriptor(process, fd, charge);
    last = memory;
  }
  return result;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned int flags) {
  return open(pointer, handle, flags, real::cuIpcOpenMemHandle_v2);
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned int flags) {
  return open(pointer, handle, flags, real::cuIpcOpenMemHandle);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) {
  Hook hook;
  const auto close = [&] { return real::cuIpcCloseMemHandle(pointer); };
  return hook.active() ? release_physical(hook.process(), pointer, close) : close();
}

}  // namespace fracgpu::cuda
