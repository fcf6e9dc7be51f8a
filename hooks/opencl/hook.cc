// Finds the devices of a call; see hook.h.
#include "hooks/opencl/hook.h"

#include <algorithm>

#include "hooks/cuda/device_key.h"
#include "shim/vendor/backend.h"

namespace fracgpu::opencl {
namespace {

// The number of a device in this process. Platforms never drop their devices.
int number_of(cl_device_id device) {
  static constinit std::atomic<cl_device_id> seen[Process::kSlotsOfVendor] = {};
  for (int i = 0; i < Process::kSlotsOfVendor; ++i) {
    cl_device_id known = nullptr;
    if (seen[i].compare_exchange_strong(known, device) || known == device) return i;
  }
  return -1;
}

}  // namespace

int device_index_of(Process& process, cl_device_id device) {
  const int number = number_of(device);
  if (number < 0) return Process::kFault;
  const int slot = Process::kOpenclSlots + number;
  if (const int known = process.cached_device_index(slot); known != Process::kUnknownDevice)
    return known;
  start_vendors();
  unsigned char uuid[cuda::kUuidBytes];
  unsigned long physical = 0;
  if (real::clGetDeviceInfo(device, kGlobalMemory, sizeof physical, &physical, nullptr) != kSuccess)
    return Process::kNotCapped;  // no device: the ICD refuses it by itself
  if (real::clGetDeviceInfo(device, kDeviceUuid, sizeof uuid, uuid, nullptr) != kSuccess)
    return process.index_of_device(slot, "", physical);
  return process.index_of_device(slot, cuda::key_of_uuid(uuid).c_str(), physical);
}

Devices devices_of(Process& process, size_t count, const cl_device_id* devices, bool& is_faulty) {
  Devices found;
  is_faulty = false;
  for (size_t i = 0; devices != nullptr && i < count; ++i) {
    if (devices[i] == nullptr) continue;
    const int device_index = device_index_of(process, devices[i]);
    if (device_index == Process::kFault) is_faulty = true;
    if (device_index >= 0) found[static_cast<size_t>(device_index)] = true;
  }
  return found;
}

DeferredMemory::Context* context_of(Process& process, cl_context handle) {
  DeferredMemory& memory = process.deferred_memory;
  DeferredMemory::Context* context = memory.find(handle);
  cl_device_id devices[Process::kSlotsOfVendor] = {};
  size_t bytes = 0;
  if (context == nullptr && real::clGetContextInfo(handle, kContextDevices, sizeof devices, devices,
                                                   &bytes) == kSuccess) {
    bool is_faulty = false;
    const Devices found = devices_of(process, bytes / sizeof devices[0], devices, is_faulty);
    context = memory.enter(process, handle, found, is_faulty);
  }
  return context != nullptr && (context->devices.any() || context->is_faulty) ? context : nullptr;
}

}  // namespace fracgpu::opencl
