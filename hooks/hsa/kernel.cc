// Stands between the runtime and the C library's ioctl and munmap; see kernel.h.
//
// The runtime's user-space driver (libhsakmt) is a separate library until 6.2 and part of the
// runtime after that. Either way it imports both functions. Only its imports are changed, so no
// other code of the process calls the functions here. Requests and their structures are KFD's
// public interface (linux/kfd_ioctl.h). Older headers lack some of them.
#include "hooks/hsa/kernel.h"

#include <errno.h>

#include <algorithm>
#include <atomic>

#include "hooks/hsa/hook.h"
#include "shim/base/import_slot.h"
#include "shim/base/report.h"
#include "shim/charge/driver_memory.h"
#include "shim/charge/in_flight.h"
#include "shim/charge/overhead.h"
#include "shim/charge/upper_call.h"

namespace fracgpu::hsa {
namespace {

constexpr uint8_t kType = 'K';
constexpr uint8_t kAllocate = 0x16, kFree = 0x17, kSetRange = 0x20, kAvailable = 0x23;

// kfd_ioctl_alloc_memory_of_gpu_args
struct Allocate {
  uint64_t va_addr;
  uint64_t size;
  uint64_t handle;  // written
  uint64_t mmap_offset;
  uint32_t gpu_id;
  uint32_t flags;
};
constexpr uint32_t kInDeviceMemory = 1 << 0;       // KFD_IOC_ALLOC_MEM_FLAGS_VRAM
constexpr uint32_t kPacketsMappedTwice = 1 << 27;  // KFD_IOC_ALLOC_MEM_FLAGS_AQL_QUEUE_MEM

// kfd_ioctl_svm_args, with kfd_ioctl_svm_attribute
struct SetRange {
  uint64_t start;
  uint64_t size;
  uint32_t operation;
  uint32_t count;
  struct Attribute {
    uint32_t type;
    uint32_t value;
  } attributes[];
};
constexpr uint32_t kSet = 0;                // KFD_IOCTL_SVM_OP_SET_ATTR
constexpr uint32_t kPrefetchTo = 1;         // KFD_IOCTL_SVM_ATTR_PREFETCH_LOC
constexpr uint32_t kSetFlags = 5;           // KFD_IOCTL_SVM_ATTR_SET_FLAGS
constexpr uint32_t kAlwaysMapped = 1 << 6;  // KFD_IOCTL_SVM_FLAG_GPU_ALWAYS_MAPPED
constexpr uint32_t kHostMemory = 0;         // KFD_IOCTL_SVM_LOCATION_SYSMEM
constexpr uint32_t kNowhere = UINT32_MAX;   // KFD_IOCTL_SVM_LOCATION_UNDEFINED

// kfd_ioctl_get_available_memory_args
struct Available {
  uint64_t bytes;  // written
  uint32_t gpu_id;
  uint32_t pad;
};

// The original functions.
using Ioctl = int (*)(int fd, unsigned long request, void* argument);
using Munmap = int (*)(void* address, size_t bytes);
std::atomic<void*> next_ioctl{nullptr}, next_munmap{nullptr};
// Whether KFD's memory requests pass through here, so that they can be refused.
std::atomic<bool> sees_memory{false};

// The calling thread's supply of KFD's memory.
struct Supply {
  bool is_out = false;  // a NoMoreMemory lives
  bool has_freed = false;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Supply supply;
// The pool for which the calling thread makes a small allocation.
struct BlockPool {
  int device_index = -1;
  int8_t pool = -1;  // negative: none
};
[[gnu::tls_model("initial-exec")]] constinit thread_local BlockPool block_pool;
// The runtime retries with ever smaller sizes. Only one refusal is reported.
[[gnu::tls_model("initial-exec")]] constinit thread_local bool was_refused = false;

// Keys of DriverBuffers: KFD's memory handles, and the addresses of save areas.
constexpr uint64_t area_key(uint64_t address) {
  return uint64_t{1} << 62 | address;
}

// The device index for a request that only this code charges. Negative if it is not on a capped
// device in use. Hooks charge the memory that the runtime takes within a hooked call.
int device_index_of_own(const Process* process, uint32_t gpu_id) {
  return process != nullptr && !HookScope::any() ? known_device_index(*process, gpu_id)
                                                 : Process::kNotCapped;
}

int refuse(Process& process, int device_index, Refusal& refusal) {
  if (!was_refused)
    report_refusal(process, device_index, UpperCall::name_or("HSA runtime allocation"), refusal);
  was_refused = true;
  errno = ENOMEM;
  return -1;
}

// Calls `ask()`, which gets memory for the application's call that charges it.
template <typename Ask>
int allocate_for_call(Process* process, const Allocate& got, Ask ask) {
  const int result = ask();
  const auto [device_index, pool] = block_pool;
  if (result == 0 && pool >= 0 && got.size == BlockCache::kBlockUnits * layout::kUnit) {
    process->driver_buffers.enter({.key = got.handle, .device_index = device_index, .pool = pool});
    const bool is_known = process->driver_buffers.find(got.handle).key != 0;
    process->blocks[device_index][pool].got(is_known);
  }
  return result;
}

template <typename Ask>
int allocate(Allocate& wanted, Ask ask) {
  if ((wanted.flags & kInDeviceMemory) == 0) return ask();
  sees_memory.store(true, std::memory_order_relaxed);
  if (supply.is_out) {
    errno = ENOMEM;
    return -1;
  }
  Process* const process = Process::known();
  const int device_index = device_index_of_own(process, wanted.gpu_id);
  if (device_index < 0) return allocate_for_call(process, wanted, ask);
  const bool twice = (wanted.flags & kPacketsMappedTwice) != 0;
  DriverMemory memory(*process, device_index, page_units(twice ? wanted.size / 2 : wanted.size));
  if (!memory) return refuse(*process, device_index, memory.refusal());
  const int result = ask();
  if (result == 0) {
    memory.taken(wanted.handle);
    was_refused = false;
  }
  return result;
}

// Calls `ask()`, which frees the buffer's memory.
template <typename Ask>
int release(uint64_t key, Ask ask) {
  supply.has_freed = true;
  Process* const process = Process::known();
  // This must precede the call: KFD may give the handle to another thread at once.
  const DriverBuffers::Entry gone =
      process != nullptr ? process->driver_buffers.take(key) : DriverBuffers::Entry{};
  if (gone.key == 0) return ask();
  const InFlightScope in_flight(*process);
  const int result = ask();
  if (result == 0 && gone.pool >= 0) {
    process->blocks[gone.device_index][gone.pool].returned();
  } else if (result == 0) {
    release_overhead(*process, gone.device_index, gone.units);
  } else {
    process->driver_buffers.enter(gone);
  }
  return result;
}

// The attribute with the device that the range is moved to. Null unless the range is a save area,
// which stays mapped. Ranges that a program prefetches are not charged: KFD takes them back for any
// allocation.
SetRange::Attribute* destination_of_save_area(SetRange& range) {
  SetRange::Attribute* destination = nullptr;
  bool stays = false;
  for (uint32_t i = 0; range.operation == kSet && i < range.count; ++i) {
    SetRange::Attribute& each = range.attributes[i];
    if (each.type == kPrefetchTo && each.value != kHostMemory && each.value != kNowhere)
      destination = &each;
    stays = stays || (each.type == kSetFlags && (each.value & kAlwaysMapped) != 0);
  }
  return stays ? destination : nullptr;
}

// KFD leaves a save area in host memory if the device has no room for it.
template <typename Ask>
int place_save_area(SetRange& range, Ask ask) {
  SetRange::Attribute* const destination = destination_of_save_area(range);
  Process* const process = destination != nullptr ? Process::known() : nullptr;
  const int device_index =
      process != nullptr ? device_index_of_own(process, destination->value) : Process::kNotCapped;
  if (device_index < 0) return ask();
  DriverMemory memory(*process, device_index, page_units(range.size));
  const uint32_t device = destination->value;
  if (!memory) destination->value = kHostMemory;
  const int result = ask();
  destination->value = device;
  if (memory && result == 0) memory.taken(area_key(range.start));
  return result;
}

template <typename Ask>
int tell_available(Available& available, Ask ask) {
  const int result = ask();
  Process* const process = Process::known();
  const int device_index =
      process != nullptr ? known_device_index(*process, available.gpu_id) : Process::kNotCapped;
  if (result != 0 || device_index < 0) return result;
  const uint64_t cap = process->ledger.cap(device_index) * layout::kUnit;
  const uint64_t rest = cap - std::min(cap, process->tenant_held(device_index));
  available.bytes = std::min(available.bytes, rest);
  return result;
}

int watched_ioctl(int fd, unsigned long request, void* argument) {
  const auto ask = [&] {
    return reinterpret_cast<Ioctl>(next_ioctl.load(std::memory_order_acquire))(fd, request,
                                                                               argument);
  };
  if ((request >> 8 & 0xff) != kType || argument == nullptr) return ask();
  switch (request & 0xff) {
    case kAllocate:
      return allocate(*static_cast<Allocate*>(argument), ask);
    case kFree:
      return release(*static_cast<uint64_t*>(argument), ask);
    case kSetRange:
      return place_save_area(*static_cast<SetRange*>(argument), ask);
    case kAvailable:
      return tell_available(*static_cast<Available*>(argument), ask);
    default:
      return ask();
  }
}

// The user-space driver unmaps a save area when its queue is gone, or when KFD refused the queue.
// Kernels before the end of 2024 do not count save areas, so a reading may already have dropped the
// charge. If there are readings, another reading settles it.
int watched_munmap(void* address, size_t bytes) {
  const auto unmap = [&] {
    return reinterpret_cast<Munmap>(next_munmap.load(std::memory_order_acquire))(address, bytes);
  };
  Process* const process = Process::known();
  if (process == nullptr) return unmap();
  DriverBuffers& buffers = process->driver_buffers;
  const DriverBuffers::Entry area = buffers.take(area_key(reinterpret_cast<uint64_t>(address)));
  const int result = unmap();
  if (area.key == 0) return result;
  if (result != 0) {
    buffers.enter(area);
  } else if (usage_is_told(*process, area.device_index)) {
    settle_overhead(*process, area.device_index);
  } else {
    release_overhead(*process, area.device_index, area.units);
  }
  return result;
}

// Makes the runtime and its user-space driver call `with` instead of their import `name`.
void replace_imports(const char* name, void* with, std::atomic<void*>& before) {
  const auto replace = [&](const elf::Loaded& object) {
    if (object.dynamic != nullptr) elf::replace_import(object, name, with, before);
  };
  replace(elf::find_object([](const elf::Loaded& object) {
    return elf::find_symbol(object, "hsaKmtOpenKFD") != nullptr;
  }));
  replace(elf::find_object(
      [](const elf::Loaded& object) { return runtime_library.contains(object.dynamic); }));
}

}  // namespace

void watch_kernel_calls() {
  if (kernel_calls_are_watched() || !runtime_library.resolve()) return;
  replace_imports("munmap", reinterpret_cast<void*>(&watched_munmap), next_munmap);
  replace_imports("ioctl", reinterpret_cast<void*>(&watched_ioctl), next_ioctl);
  static constinit std::atomic<bool> was_reported{false};
  if (kernel_calls_are_watched() || was_reported.exchange(true)) return;
  report(Level::warn,
         "the HSA runtime's calls to the kernel driver are not watched: it imports no ioctl, or "
         "mprotect was refused; what it takes for itself (its own queue, scratch memory) may pass "
         "the cap until the next reading, and a queue needs more room than it takes");
}

bool kernel_calls_are_watched() {
  return next_ioctl.load(std::memory_order_acquire) != nullptr;
}

NoMoreMemory::NoMoreMemory() {
  supply = {.is_out = true};
}
NoMoreMemory::~NoMoreMemory() {
  supply = {};
}
bool NoMoreMemory::is_possible() {
  return sees_memory.load(std::memory_order_relaxed) && !supply.is_out;
}
bool NoMoreMemory::has_freed() {
  return supply.has_freed;
}

BlockScope::BlockScope(int device_index, int pool) {
  block_pool = {device_index, static_cast<int8_t>(pool)};
}
BlockScope::~BlockScope() {
  block_pool = {};
}

bool trim_runtime(const char* device_key) {
  constexpr size_t kMoreThanAnyBlock = 8u << 20;
  const hsa_amd_memory_pool_t pool = pool_of(device_key);
  if (pool.handle == 0 || !NoMoreMemory::is_possible()) return false;
  // The runtime gives back what it can, and tries again.
  const NoMoreMemory full;
  void* memory = nullptr;
  const hsa_status_t result =
      real::hsa_amd_memory_pool_allocate(pool, kMoreThanAnyBlock, 0, &memory);
  const bool has_freed = NoMoreMemory::has_freed();
  if (result == kSuccess) real::hsa_amd_memory_pool_free(memory);
  return has_freed;
}

}  // namespace fracgpu::hsa
