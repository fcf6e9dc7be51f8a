// Memory shared by IPC handles: the exporter pays, and goes on paying after its death as long as a
// process of the tenant has the memory open; the importer never does.
#include "hooks/cuda/hook.h"
#include "shim/charge.h"

namespace fracgpu::cuda {
namespace {

// Enters what was opened at `*pointer`, with its size, as memory that another process pays for.
void note_opened(Process& process, CUdeviceptr pointer) {
  PhysicalTable& physical = process.physical;
  if (const uint64_t known = physical.memory_of(pointer); known != 0) {
    return physical.add_reference(pointer, known);
  }
  Context context;
  CUdeviceptr base = 0;
  size_t bytes = 0;
  if (!current_context(process, context) || context.row < 0 ||
      real::cuMemGetAddressRange_v2(&base, &bytes, pointer) != kSuccess ||
      !physical.add(pointer, 0, context.row, true)) {
    return;
  }
  int row = 0;
  const uint64_t units =
      physical.note_import(physical.memory_of(pointer), linear_size(bytes).units, row);
  process.ledger.add_imported(row, units);
}

template <typename Real>
CUresult open(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned int flags, const Real& real) {
  Hook hook;
  const CUresult result = real(pointer, handle, flags);
  if (result == kSuccess && hook.active() && pointer != nullptr) {
    note_opened(hook.process(), *pointer);
  }
  return result;
}

}  // namespace

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr pointer) {
  Hook hook;
  const CUresult result = real::cuIpcGetMemHandle(handle, pointer);
  if (result != kSuccess || !hook.active()) return result;
  Process& process = hook.process();
  Allocation entry;
  if (process.allocations.mark_exported(pointer, entry) ||
      process.allocations.mark_exported(chunk_key(pointer), entry)) {
    process.ledger.add_exported(entry.row, entry.units);
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
  if (!hook.active()) return real::cuIpcCloseMemHandle(pointer);
  Process& process = hook.process();
  const uint64_t memory = process.physical.memory_of(pointer);
  const CUresult result = real::cuIpcCloseMemHandle(pointer);
  if (result == kSuccess && memory != 0) {
    const PhysicalTable::Freed freed = process.physical.drop_reference(memory);
    if (freed.imported > 0) process.ledger.drop_imported(freed.row, freed.imported);
  }
  return result;
}

}  // namespace fracgpu::cuda
