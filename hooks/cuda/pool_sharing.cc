// Pools and pool memory that processes share.
#include <algorithm>

#include "hooks/cuda/kernel.h"
#include "hooks/cuda/pools.h"
#include "hooks/cuda/streams.h"
#include "shim/charge/linear.h"
#include "shim/charge/pools.h"
#include "shim/charge/vmm_calls.h"

namespace fracgpu::cuda {
namespace {

// A key of the memory that was exported as `data`. No address or handle of the driver is that
// large.
uint64_t export_key(const CUmemPoolPtrExportData& data) {
  return uint64_t{1} << 63 | layout::hash_of_handle(&data, sizeof data);
}

// Enters memory of another process's pool, unless its chunks were entered when RM handed them over.
// The import holds all chunks that the memory lies in.
//
// libcuda 535.261.03 and 550.163.01 keep the memory until the process ends, even if the pointer is
// freed and the pool destroyed. So the export's key refers to it, too. The driver may give its
// address to another import, and the program may import the memory again at another address.
void enter_imported(Process& process, ImportCall& call, const PoolSharing& sharing,
                    const CUmemPoolPtrExportData& data, CUdeviceptr pointer) {
  CUdevice device = 0;
  size_t mapped = 0, bytes = 0;
  const OwnCalls own_calls(process);
  if (real::cuPointerGetAttribute(&device, kPointerDevice, pointer) != kSuccess) return;
  const int device_index = device_index_of(process, device);
  const bool is_watched = kernel_calls_are_watched(device_index);
  if (is_watched && !sharing.has_unentered()) return;
  PhysicalTable& physical = process.physical;
  // A second import of the same memory returns the same address, and one free ends both.
  if (physical.is_referenced(pointer)) return;
  const uint64_t exported = export_key(data);
  if (const uint64_t kept = physical.memory_of(exported); kept != 0)
    return physical.add_reference(pointer, kept);
  real::cuPointerGetAttribute(&mapped, kPointerMapping, pointer);
  real::cuMemGetAddressRange_v2(nullptr, &bytes, pointer);
  const uint64_t units =
      std::max(layout::units_for(mapped), pool_growth_units(pointer % kPoolChunkBytes + bytes));
  call.imported(pointer, device_index, units);
  // The simulated libcuda gives the memory back.
  if (is_watched) physical.add_reference(exported, physical.memory_of(pointer));
}

}  // namespace

CUresult cuMemPoolExportToShareableHandle(void* os_handle, CUmemoryPool pool, int handle_type,
                                          unsigned long long flags) {
  Hook hook;
  const PoolSharing sharing;
  const CUresult result =
      real::cuMemPoolExportToShareableHandle(os_handle, pool, handle_type, flags);
  if (result == kSuccess && hook.active()) {
    const int fd = handle_type == kPosixDescriptor ? *static_cast<const int*>(os_handle) : -1;
    const bool by_chunk = fd >= 0 && listed_pool(hook.process(), fd) != 0;
    note_exported_pool(hook.process(), key_of(pool), fd, by_chunk);
  }
  return result;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* data, CUdeviceptr pointer) {
  Hook hook;
  const PoolSharing sharing;
  const CUresult result = real::cuMemPoolExportPointer(data, pointer);
  if (result == kSuccess && hook.active()) note_handle(hook.process(), data, sizeof *data, 0);
  return result;
}

CUresult cuMemPoolImportPointer(CUdeviceptr* pointer, CUmemoryPool pool,
                                CUmemPoolPtrExportData* data) {
  Hook hook;
  if (!hook.active() || pointer == nullptr) {
    return real::cuMemPoolImportPointer(pointer, pool, data);
  }
  ImportCall call(hook.process(), data, sizeof *data);
  const PoolSharing sharing;
  const CUresult result = real::cuMemPoolImportPointer(pointer, pool, data);
  if (result == kSuccess) enter_imported(hook.process(), call, sharing, *data, *pointer);
  return result;
}

}  // namespace fracgpu::cuda
