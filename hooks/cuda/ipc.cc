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
  Process& process = hook.process();
  Allocation entry;
  note_exported_allocation(process, pointer, entry);
  // A handle of an address within an allocation exports the whole allocation.
  CUdeviceptr base = 0;
  size_t bytes = 0;
  if (entry.key == 0 && on_own_account(process, [&] {
                          return real::cuMemGetAddressRange_v2(&base, &bytes, pointer);
                        }) == kSuccess) {
    note_exported_allocation(process, base, entry);
  }
  note_handle(process, handle, sizeof *handle);
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
