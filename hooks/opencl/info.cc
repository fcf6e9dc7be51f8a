// Reports of a device's memory: clGetDeviceInfo.
#include <string.h>

#include <algorithm>

#include "hooks/opencl/hook.h"

namespace fracgpu::opencl {

// The ICD answers first. The largest allocation stays at most a quarter of the reported memory.
cl_int clGetDeviceInfo(cl_device_id device, cl_uint name, size_t bytes, void* value,
                       size_t* bytes_ret) {
  const cl_int result = real::clGetDeviceInfo(device, name, bytes, value, bytes_ret);
  if (result != kSuccess || value == nullptr || (name != kGlobalMemory && name != kMaxAllocation))
    return result;
  Hook hook;
  unsigned long physical = 0, answer = 0;
  if (!hook.active() || real::clGetDeviceInfo(device, kGlobalMemory, sizeof physical, &physical,
                                              nullptr) != kSuccess) {
    return result;
  }
  Process& process = hook.process();
  const int device_index = device_index_of(process, device);
  if (device_index == Process::kNotCapped) return result;
  // With a fault nothing can be allocated.
  const uint64_t cap =
      device_index == Process::kFault ? 0 : process.ledger.cap(device_index) * layout::kUnit;
  if (cap >= physical) return result;
  memcpy(&answer, value, sizeof answer);
  answer = name == kGlobalMemory ? cap : std::min<uint64_t>(answer, cap / 4);
  memcpy(value, &answer, sizeof answer);
  return result;
}

}  // namespace fracgpu::opencl
