// Reports of a device's memory: cuMemGetInfo and cuDeviceTotalMem.
//
// The driver answers first, so that errors are its own. Then total becomes the cap, and free
// becomes the room left under it, but never more than the driver reports.
#include <algorithm>

#include "hooks/cuda/hook.h"
#include "shim/charge/linear.h"
#include "shim/charge/overhead.h"
#include "shim/charge/pools.h"

namespace fracgpu::cuda {
namespace {

uint64_t cap_bytes(Process& process, int device_index) {
  // With a fault nothing can be allocated. Reporting 0 keeps programs from sizing themselves for
  // memory that they cannot get.
  return device_index == Process::kFault ? 0 : process.ledger.cap(device_index) * layout::kUnit;
}

template <typename Size>
Size clamp(uint64_t bytes) {
  return static_cast<Size>(std::min<uint64_t>(bytes, static_cast<Size>(~Size{0})));
}

[[gnu::cold]] void note_only_device(Process& process, int device_index) {
  int count = 0;
  real::cuDeviceGetCount(&count);
  if (device_index != Process::kFault)
    process.only_cuda_device = count == 1 ? device_index : Process::kNotCapped;
}

// The device index of the current context, or Process::kNotCapped / kFault. The driver has just
// answered for that context. With one CUDA device, as in most containers, the driver need not be
// asked which device it is.
int current_device(Process& process) {
  const int only = process.only_cuda_device.load(std::memory_order_relaxed);
  if (only >= 0 && !process.contexts.any_may_grow()) return only;
  Context context;
  if (!current_context(process, context)) return Process::kNotCapped;
  if (only == Process::kUnknownDevice) [[unlikely]]
    note_only_device(process, context.device_index);
  return context.device_index;
}

template <typename Size, typename Real>
CUresult memory_info(Size* free, Size* total, const Real& real) {
  Hook hook;
  const CUresult result = real(free, total);
  if (result != kSuccess || !hook.active()) return result;
  Process& process = hook.process();
  const int device_index = current_device(process);
  if (device_index == Process::kNotCapped) return result;
  const uint64_t cap = cap_bytes(process, device_index);
  if (total != nullptr) *total = clamp<Size>(std::min<uint64_t>(*total, cap));
  if (free != nullptr && device_index != Process::kFault) {
    // Pools shrink by themselves when the work in their streams is done.
    if (!process.pools.empty()) settle_pools(process, device_index);
    finish_unmaps(process);
    if (reading_is_stale(process, device_index)) [[unlikely]]
      renew_reading(process, device_index);
    const uint64_t held = process.tenant_held(device_index);
    *free = clamp<Size>(std::min<uint64_t>(*free, cap > held ? cap - held : 0));
  } else if (free != nullptr) {
    *free = 0;
  }
  return result;
}

template <typename Size, typename Real>
CUresult total_memory(Size* bytes, CUdevice device, const Real& real) {
  Hook hook;
  const CUresult result = real(bytes, device);
  if (result != kSuccess || !hook.active() || bytes == nullptr) return result;
  const int device_index = device_index_of(hook.process(), device);
  if (device_index == Process::kNotCapped) return result;
  *bytes = clamp<Size>(std::min<uint64_t>(*bytes, cap_bytes(hook.process(), device_index)));
  return result;
}

}  // namespace

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  return memory_info(free, total, real::cuMemGetInfo_v2);
}

CUresult cuMemGetInfo(unsigned int* free, unsigned int* total) {
  return memory_info(free, total, real::cuMemGetInfo);
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  return total_memory(bytes, device, real::cuDeviceTotalMem_v2);
}

CUresult cuDeviceTotalMem(unsigned int* bytes, CUdevice device) {
  return total_memory(bytes, device, real::cuDeviceTotalMem);
}

}  // namespace fracgpu::cuda
