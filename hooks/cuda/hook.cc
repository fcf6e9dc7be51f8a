// Finds the device of a call; see library_hook.h.
//
// Getting the current context from the driver costs a few nanoseconds. Each thread caches
// everything else about it until a context is destroyed.
#include "hooks/cuda/hook.h"

#include <string.h>

#include "hooks/cuda/kernel.h"
#include "hooks/cuda/limits.h"
#include "hooks/cuda/streams.h"
#include "shim/base/text.h"
#include "shim/vendor/backend.h"

namespace fracgpu::cuda {
namespace {

Text<64> key_from(const char* kind, const CUuuid& uuid) {
  Text<64> key(kind);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(&uuid);
  for (size_t i = 0; i < sizeof uuid; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) key.append("-");
    key.append("{:02x}", bytes[i]);
  }
  return key;
}

bool exists(const Text<64>& key) {
  Selector selector;
  return selector.parse(key.view()) && device_may_exist(selector);
}

// With `is_instance`, the UUID is known to belong to a MIG instance. Otherwise NVML is asked.
Text<64> key_of_uuid(const CUuuid& uuid, bool is_instance) {
  const Text<64> gpu = key_from("GPU-", uuid), instance = key_from("MIG-", uuid);
  return is_instance || (!exists(gpu) && exists(instance)) ? instance : gpu;
}

// The driver's key of a device, as nvidia-smi prints it: "GPU-" or "MIG-" and the UUID. The second
// version of the call returns the MIG instance's UUID. The first version is older than MIG and
// returns the GPU's UUID.
CUresult find_key(CUdevice device, Text<64>& key) {
  CUuuid uuid, of_gpu;
  const bool second = real::cuDeviceGetUuid_v2.exists();
  const CUresult result =
      second ? real::cuDeviceGetUuid_v2(&uuid, device) : real::cuDeviceGetUuid(&uuid, device);
  if (result != kSuccess) return result;
  const bool differ = second && real::cuDeviceGetUuid(&of_gpu, device) == kSuccess &&
                      memcmp(&uuid, &of_gpu, sizeof uuid) != 0;
  // If the first version ever returns instances too, NVML still knows what the UUID names.
  key = key_of_uuid(uuid, differ);
  return kSuccess;
}

}  // namespace

// GCC loses the TLS model of the declaration.
[[gnu::tls_model("initial-exec")]] constinit thread_local RememberedContext remembered_context;

int device_index_of(Process& process, CUdevice device) {
  if (device < 0 || device >= Process::kSlotsOfVendor) return Process::kNotCapped;
  const int slot = Process::kNvidiaSlots + device;
  if (const int known = process.cached_device_index(slot); known != Process::kUnknownDevice)
    return known;
  start_vendors();
  watch_kernel_calls();
  const OwnCalls own_calls(process);
  Text<64> key;
  size_t physical = 0;
  CUresult result = find_key(device, key);
  if (result == kSuccess) result = real::cuDeviceTotalMem_v2(&physical, device);
  if (is_unusable(result)) return Process::kNotCapped;  // not cached
  return process.index_of_device(slot, result == kSuccess ? key.c_str() : "", physical);
}

bool look_up_context(Process& process, CUcontext handle, Context& context) {
  // Read before the table: its answer may be outdated when it is remembered.
  const uint64_t epoch = process.contexts.epoch();
  if (!process.contexts.find(handle, context)) return false;
  if (process.contexts.any_may_grow()) return true;
  remembered_context = {&process, epoch, context};
  return true;
}

// Enters a context made by a function that is not hooked, such as those for graphics
// interoperation.
static bool enter_current_context(Process& process, CUresult result, CUcontext handle,
                                  Context& context) {
  CUdevice device = 0;
  if (result == kSuccess) {
    const OwnCalls own_calls(process);
    result = real::cuCtxGetDevice(&device);
  }
  if (is_unusable(result) || result == kInvalidContext || result == kContextIsDestroyed)
    return false;
  context = result == kSuccess
                ? process.contexts.enter(handle, device, device_index_of(process, device))
                : Context{.device_index = Process::kFault};
  return true;
}

bool find_current_context(Process& process, CUresult result, CUcontext handle, Context& context) {
  if (result != kSuccess || !known_context(process, handle, context))
    return enter_current_context(process, result, handle, context);
  if (process.contexts.any_may_grow()) see_launches(process, context);
  return true;
}

}  // namespace fracgpu::cuda
