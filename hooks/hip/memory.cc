// Linear and managed memory.
//
// Linear memory is charged at the HSA call under it. Reserving first means that memory that does
// not fit is refused before the runtime does any work. Managed memory is host memory. The kernel
// moves it to the device when the device touches it, without a call to any function. So it is
// charged here, in full, when it is allocated.
#include "hooks/hip/hook.h"
#include "shim/charge/in_flight.h"
#include "shim/charge/linear.h"
#include "shim/charge/refusal.h"

namespace fracgpu::hip {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kBlock = BlockCache::kBlockUnits * layout::kUnit;

// Managed memory consists of whole pages of host memory. The kernel moves as many to the device.
uint64_t managed_units(uint64_t bytes) {
  return (bytes / kPage + (bytes % kPage != 0)) * (kPage / layout::kUnit);
}

uint64_t block_units(uint64_t bytes) {
  return (bytes / kBlock + (bytes % kBlock != 0)) * BlockCache::kBlockUnits;
}

uint64_t product(uint64_t a, uint64_t b) {
  uint64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? UINT64_MAX : result;
}

// Calls `allocate()`, which takes at least `bytes` of the current device. Small requests may fit
// into a block that is already charged. The HSA call charges those.
template <typename Allocate>
hipError_t allocate_linear(const char* api, uint64_t bytes, Allocate allocate) {
  Hook hook(api);
  hook.call().note_asked(bytes);
  if (bytes <= kBlock || !hook.active()) return hook.finish(allocate());
  Process& process = hook.process();
  const int device_index = current_device_index(process);
  if (device_index >= 0 && !hook.call().reserve(process, device_index, block_units(bytes)))
    return kOutOfMemory;
  return hook.finish(allocate());
}

// The keys of managed memory among the live allocations. An HSA allocation may have the same
// address.
uint64_t managed_key(const void* pointer) {
  return reinterpret_cast<uint64_t>(pointer) | 2;
}

// Among the contexts, it stands for HIP's managed memory on a device.
const void* managed_context(int device_index) {
  static const char of_device[layout::kMaxDevices] = {};
  return &of_device[device_index];
}

// The program or HIP itself calls this. The table shows whether the address is managed memory.
hipError_t free_managed(Process& process, void* pointer) {
  Allocation managed;
  if (!process.allocations.take(managed_key(pointer), managed)) return real::hipFree(pointer);
  process.recorder.add({.type = ring::Type::released, .address = managed_key(pointer)}, "hipFree");
  const hipError_t result = real::hipFree(pointer);
  if (result == kSuccess) {
    process.managed_count.fetch_sub(1, std::memory_order_relaxed);
    process.ledger.release(managed.device_index, managed.units);
  } else {
    Allocation displaced;
    process.allocations.add(managed, displaced);
    process.recorder.add({.type = ring::Type::kept, .address = managed_key(pointer)});
  }
  return result;
}

// Calls `reset()`, after which all managed memory of the device is gone.
template <typename Reset>
hipError_t reset_device(Hook& hook, int device_index, Reset reset) {
  if (device_index < 0) return reset();
  Process& process = hook.process();
  const InFlightScope in_flight(process);
  Context context;
  // This must precede the call: memory that another thread allocates after the call is not part of
  // the reset.
  const bool known = process.contexts.begin_drop(managed_context(device_index), context);
  const hipError_t result = reset();
  if (known && result == kSuccess) {
    process.contexts.finish_drop(context);
    release_context(process, context);
  } else if (known) {
    process.contexts.abandon_drop(context);
  }
  return result;
}

}  // namespace

hipError_t hipMalloc(void** pointer, size_t size) {
  return allocate_linear("hipMalloc", pointer == nullptr ? 0 : size,
                         [&] { return real::hipMalloc(pointer, size); });
}

hipError_t hipExtMallocWithFlags(void** pointer, size_t size, unsigned int flags) {
  const bool device = pointer != nullptr && (flags & kMallocSignal) == 0;
  return allocate_linear("hipExtMallocWithFlags", device ? size : 0,
                         [&] { return real::hipExtMallocWithFlags(pointer, size, flags); });
}

hipError_t hipMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
  return allocate_linear("hipMallocPitch", product(width, height),
                         [&] { return real::hipMallocPitch(pointer, pitch, width, height); });
}

hipError_t hipMemAllocPitch(void** pointer, size_t* pitch, size_t width, size_t height,
                            unsigned int element_size) {
  return allocate_linear("hipMemAllocPitch", product(width, height), [&] {
    return real::hipMemAllocPitch(pointer, pitch, width, height, element_size);
  });
}

hipError_t hipMalloc3D(void* pitched_pointer, hipExtent extent) {
  return allocate_linear("hipMalloc3D", product(product(extent.width, extent.height), extent.depth),
                         [&] { return real::hipMalloc3D(pitched_pointer, extent); });
}

hipError_t hipMallocManaged(void** pointer, size_t size, unsigned int flags) {
  Hook hook("hipMallocManaged");
  const auto allocate = [&] { return real::hipMallocManaged(pointer, size, flags); };
  if (!hook.active() || pointer == nullptr || size == 0) return allocate();
  Process& process = hook.process();
  const int device_index = current_device_index(process);
  if (device_index == Process::kNotCapped) return allocate();
  if (device_index == Process::kFault) {
    report_fault(process, "hipMallocManaged");
    return kOutOfMemory;
  }
  hook.call().note_asked(size);
  if (!hook.call().reserve(process, device_index, managed_units(size))) return kOutOfMemory;
  void* const before = *pointer;
  const hipError_t result = allocate();
  // If the kernel cannot move memory, HIP may take device memory, which the HSA hook has charged.
  if (result != kSuccess || !hook.call().untouched()) return hook.finish(result);
  const Context context =
      process.contexts.enter(managed_context(device_index), device_index, device_index);
  const uint64_t units = hook.call().take_rest();
  if (enter_managed(process, context, managed_key(*pointer), units)) {
    process.managed_count.fetch_add(1, std::memory_order_relaxed);
    process.recorder.add({.type = ring::Type::allocated,
                          .kind = ring::Kind::managed,
                          .device = static_cast<uint8_t>(device_index),
                          .address = managed_key(*pointer),
                          .bytes = size,
                          .taken = units * layout::kUnit},
                         "hipMallocManaged");
    return result;
  }
  real::hipFree(*pointer);
  *pointer = before;
  return kOutOfMemory;
}

hipError_t hipFree(void* pointer) {
  runtime_library.resolve();
  // The HSA call under this one gives back all memory except managed memory.
  Process* const process = Process::known();
  if (process == nullptr || process->managed_count.load(std::memory_order_relaxed) == 0) {
    return real::hipFree(pointer);
  }
  return free_managed(*process, pointer);
}

hipError_t hipDeviceReset() {
  Hook hook("hipDeviceReset");
  const int device_index =
      hook.active() ? current_device_index(hook.process()) : Process::kNotCapped;
  return reset_device(hook, device_index, [] { return real::hipDeviceReset(); });
}

hipError_t hipDevicePrimaryCtxReset(int device) {
  Hook hook("hipDevicePrimaryCtxReset");
  const int device_index =
      hook.active() ? device_index_of(hook.process(), device) : Process::kNotCapped;
  return reset_device(hook, device_index, [&] { return real::hipDevicePrimaryCtxReset(device); });
}

}  // namespace fracgpu::hip
