// Finds the device of a call; see hook.h.
//
// Asking the driver for the current context costs a few nanoseconds; everything else about it is
// remembered by the thread until some context is destroyed.
#include "hooks/cuda/hook.h"

#include "shim/text.h"

namespace fracgpu::cuda {
namespace {

// The driver's key of a device, "GPU-" and the UUID as nvidia-smi prints it; empty on failure.
Text<64> key_of(CUdevice device) {
  Text<64> key;
  CUuuid uuid;
  const CUresult result = real::cuDeviceGetUuid_v2.exists()
                              ? real::cuDeviceGetUuid_v2(&uuid, device)
                              : real::cuDeviceGetUuid(&uuid, device);
  if (result != kSuccess) return key;
  key.append("GPU-");
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) key.append("-");
    key.append("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return key;
}

struct Remembered {
  const Process* process = nullptr;
  uint64_t epoch = 0;
  Context context;
};
[[gnu::tls_model("initial-exec")]] thread_local Remembered remembered;

}  // namespace

int row_of(Process& process, CUdevice device) {
  if (device < 0 || device >= Process::kSlotsOfVendor) return Process::kNotCapped;
  const int slot = Process::kNvidiaSlots + device;
  if (const int known = process.cached_row(slot); known != Process::kUnknownRow) return known;
  const Text<64> key = key_of(device);
  size_t physical = 0;
  // Unknown device or driver not initialised: not remembered, the driver's own error comes next.
  if (key.empty() || real::cuDeviceTotalMem_v2(&physical, device) != kSuccess) {
    return Process::kNotCapped;
  }
  return process.row_of_device(slot, key.c_str(), physical);
}

bool current_context(Process& process, Context& context) {
  CUcontext handle = nullptr;
  if (real::cuCtxGetCurrent(&handle) != kSuccess || handle == nullptr) return false;
  const uint64_t epoch = process.contexts.epoch();
  Remembered& last = remembered;
  if (last.context.handle != handle || last.epoch != epoch || last.process != &process) {
    if (!process.contexts.find(handle, last.context)) {
      // Made by a function that is not hooked, such as those of the graphics interoperation.
      CUdevice device = 0;
      if (real::cuCtxGetDevice(&device) != kSuccess) return false;
      last.context = process.contexts.enter(handle, device, row_of(process, device));
    }
    last.epoch = epoch;
    last.process = &process;
  }
  context = last.context;
  return true;
}

}  // namespace fracgpu::cuda
