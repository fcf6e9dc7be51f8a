// Stands between libcuda and the C library's ioctl; see kernel.h.
//
// Only libcuda's import is changed, so no other code of the process calls these functions. The
// escapes and their structures are RM's public interface (NVIDIA's open kernel modules, nvos.h).
// The fields that are read here have not moved since 535 (gVisor's nvproxy lists the changes).
//
// libcuda holds its own locks during these calls. So this code must not wait for
// `Process::cold_paths`, or for another lock under which this library calls libcuda. It reserves
// memory in the ledger, and counts it in `Overhead::unasked` until a reading takes it over.
#include "hooks/cuda/kernel.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <utility>

#include "hooks/cuda/hook.h"
#include "shim/base/import_slot.h"
#include "shim/charge/in_flight.h"
#include "shim/charge/linear.h"
#include "shim/charge/overhead.h"
#include "shim/charge/overhead_reading.h"
#include "shim/charge/refusal.h"

namespace fracgpu::cuda {
namespace {

// NV_IOCTL_MAGIC, and NV_ESC_RM_FREE, _ALLOC and _VID_HEAP_CONTROL.
constexpr uint8_t kType = 'F';
constexpr uint8_t kFree = 0x29, kAllocate = 0x2b, kHeapControl = 0x4a;
constexpr uint32_t kNoMemory = 0x51;           // NV_ERR_NO_MEMORY
constexpr uint32_t kDeviceMemory = 0x40;       // NV01_MEMORY_LOCAL_USER
constexpr uint32_t kAllocateSize = 2;          // NVOS32_FUNCTION_ALLOC_SIZE
constexpr uint32_t kAddressesAlone = 0x80000;  // NVOS32_ALLOC_FLAGS_VIRTUAL
constexpr uint32_t kLocation = 0x3 << 25;      // NVOS32_ATTR_LOCATION; 0: in device memory

// NVOS00_PARAMETERS
struct Free {
  uint32_t client;
  uint32_t parent;
  uint32_t object;
  uint32_t status;  // written
};

// NVOS64_PARAMETERS. NVOS21_PARAMETERS is the same up to `parameters`. Before 535,
// NVOS64_PARAMETERS has no `parameters_size` and `pad` (gVisor's nvproxy). No driver has confirmed
// that for memory: libcuda 470 and 535 request memory by NVOS32_PARAMETERS, and 550 by the newer
// form.
struct Allocate {
  uint32_t client;
  uint32_t parent;
  uint32_t object;  // written if 0
  uint32_t object_class;
  uint64_t parameters;
  uint64_t rights;
  uint32_t parameters_size;
  uint32_t flags;
  uint32_t status;  // written
  uint32_t pad;
};
constexpr uint32_t kIsSerialized = 1 << 0;  // NVOS64_FLAGS_FINN_SERIALIZED
// The offset of the status, by the size of the structure.
constexpr size_t status_offset(size_t size) {
  constexpr size_t kBefore535 = 40, kNvos21 = 32;
  switch (size) {
    case sizeof(Allocate):
      return offsetof(Allocate, status);
    case kBefore535:
      return 36;
    case kNvos21:
      return 28;
    default:
      return 0;
  }
}
// NV_MEMORY_ALLOCATION_PARAMS, as far as needed.
struct MemoryParameters {
  uint32_t owner, type, flags, width, height, pitch, attributes, attributes2;
  uint32_t format, compression, zcull, pad;
  uint64_t range_low, range_high;
  uint64_t size;
};

// NVOS32_PARAMETERS with NVOS32_FUNCTION_ALLOC_SIZE, as far as needed.
struct HeapControl {
  uint32_t client;
  uint32_t parent;
  uint32_t function;
  uint32_t address_space;
  uint32_t heap;
  uint32_t status;  // written
  uint64_t total, free;
  uint32_t owner;
  uint32_t object;  // written if 0
  uint32_t type, flags, attributes, format, compression, zcull, stride, width, height, pad;
  uint64_t size;
};

using Ioctl = int (*)(int fd, unsigned long request, void* argument);
std::atomic<void*> next_ioctl{nullptr};

[[gnu::tls_model("initial-exec")]] constinit thread_local KernelCall* current_call = nullptr;
// libcuda retries several times. Only the first refusal is reported.
[[gnu::tls_model("initial-exec")]] constinit thread_local bool was_refused = false;

constexpr uint64_t key_of(uint32_t client, uint32_t object) {
  return uint64_t{client} << 32 | object;
}

// The parents of libcuda's memory, which are RM's device objects. A KernelCall names the device, so
// a parent's device is learned inside one. Entries are read without a lock and never removed.
class Parents {
 public:
  // Returns the parent's device. Enters `device_index` if the parent is not known yet.
  int learn(uint64_t parent, int device_index) {
    for (Entry& each : entries_) {
      uint64_t seen = 0;
      if (each.parent.compare_exchange_strong(seen, parent)) {
        each.device_index.store(device_index, std::memory_order_release);
        return device_index;
      }
      if (seen == parent) return each.device_index.load(std::memory_order_acquire);
    }
    return Process::kNotCapped;
  }

  int device_of(uint64_t parent) const {
    for (const Entry& each : entries_) {
      const uint64_t seen = each.parent.load(std::memory_order_acquire);
      if (seen == parent) return each.device_index.load(std::memory_order_acquire);
      if (seen == 0) break;
    }
    return Process::kNotCapped;
  }

  bool have(int device_index) const {
    for (const Entry& each : entries_) {
      if (each.parent.load(std::memory_order_relaxed) == 0) break;
      if (each.device_index.load(std::memory_order_relaxed) == device_index) return true;
    }
    return false;
  }

 private:
  struct Entry {
    std::atomic<uint64_t> parent{0};
    std::atomic<int> device_index{Process::kNotCapped};
  };
  std::array<Entry, 64> entries_;
};
constinit Parents parents;

// Whether the driver reports what the process holds, so that a reading corrects the charge.
bool is_told(const Process& process, int device_index) {
  return !process.overhead[device_index].untold.load(std::memory_order_relaxed);
}

}  // namespace

class KernelMemory {
 public:
  KernelMemory(Process& process, int device_index, KernelCall* call)
      : process_(process), device_index_(device_index), call_(call) {}

  // False if the cap has no room.
  bool reserve(uint64_t bytes) {
    units_ = linear_size(bytes).units;  // whole pages
    stocked_ = call_ != nullptr ? std::min(call_->left_, units_) : 0;
    Refusal own;
    Refusal& refusal = call_ != nullptr ? call_->refusal_ : own;
    if (units_ == stocked_ || process_.ledger.reserve(device_index_, units_ - stocked_, refusal))
      return true;
    if (call_ != nullptr) {
      call_->refused_ = units_ - stocked_;
      return false;
    }
    if (refusal.fault.empty() && charge_by_usage(process_, device_index_, units_)) return true;
    if (!was_refused)
      report_refusal(process_, device_index_, {"CUDA driver allocation", bytes}, refusal);
    was_refused = true;
    return false;
  }

  void refused_by_driver() { process_.ledger.release(device_index_, units_ - stocked_); }

  void taken(uint64_t key) {
    const bool at_once = call_ == nullptr || call_->charge_ == KernelCall::Charge::at_once;
    if (call_ != nullptr) {
      call_->left_ -= stocked_;
      call_->has_changed_ = true;
    }
    if (at_once) {
      add_unasked(static_cast<int64_t>(units_));
    } else {
      call_->excess_ += units_ - stocked_;
    }
    const DriverBuffers::Entry buffer{
        .key = key, .units = units_, .device_index = device_index_, .is_charged = at_once};
    if (call_ != nullptr && call_->charge_ == KernelCall::Charge::as_asked) {
      process_.rm_memory.take(key);
    } else {
      process_.rm_memory.enter(buffer);
    }
    was_refused = false;
  }

  // Accounts for `buffer`, which RM got back.
  void given_back(const DriverBuffers::Entry& buffer) {
    const auto units = static_cast<int64_t>(buffer.units);
    const bool told = is_told(process_, device_index_);
    const bool is_here = call_ != nullptr && call_->device_index_ == device_index_;
    const bool is_held = is_here && call_->charge_ == KernelCall::Charge::as_overhead;
    // A hook without a KernelCall accounts for all that its call has changed.
    const bool is_seen_here_alone = is_here || !HookScope::any();
    if (call_ != nullptr) call_->has_changed_ = true;
    if (is_held) {
      // The driver frees a context's local memory before it takes the new one.
      call_->left_ += buffer.units;
      if (!buffer.is_charged && !told) return;
      call_->excess_ += buffer.units;
      add_unasked(-units);
    } else if (buffer.is_charged || (told && is_seen_here_alone)) {
      add_unasked(-units);
      process_.ledger.release(device_index_, buffer.units);
    }
  }

 private:
  void add_unasked(int64_t units) {
    Overhead& overhead = process_.overhead[device_index_];
    const int64_t unasked = overhead.unasked.fetch_add(units) + units;
    publish_overhead(process_, device_index_, overhead.units + static_cast<uint64_t>(unasked));
    outdate_reading(process_, device_index_);
  }

  Process& process_;
  const int device_index_;
  KernelCall* const call_;
  uint64_t units_ = 0;
  uint64_t stocked_ = 0;  // the part of `units_` that the call reserved
};

namespace {

// Handles a request for device memory. `ask()` returns whether RM granted it; `key()` is then the
// new object's key. False if the cap had no room.
template <typename Ask, typename Key>
bool allocate(uint64_t parent, uint64_t bytes, Ask ask, Key key) {
  Process* const process = Process::known();
  KernelCall* call = current_call;
  const int device_index = process == nullptr ? Process::kNotCapped
                           : call != nullptr  ? parents.learn(parent, call->device_index())
                                              : parents.device_of(parent);
  const bool is_charged_by_hook = call == nullptr && HookScope::any();
  if (call != nullptr && call->device_index() != device_index) call = nullptr;  // another device's
  if (device_index < 0 || is_charged_by_hook) {
    // RM gives out a handle again only if its former object ended with its parent.
    if (ask() && process != nullptr) process->rm_memory.take(key());
    return true;
  }
  KernelMemory memory(*process, device_index, call);
  if (!memory.reserve(bytes)) return false;
  const InFlightScope in_flight(*process);
  if (ask()) {
    memory.taken(key());
  } else {
    memory.refused_by_driver();
  }
  return true;
}

// Calls `allocate` for one of RM's request structures. Writes a refusal to its `status`.
template <typename Wanted, typename Ask>
int allocate_by(Wanted& wanted, uint64_t bytes, uint32_t& status, Ask ask) {
  int result = 0;
  const bool has_room = allocate(
      key_of(wanted.client, wanted.parent), bytes,
      [&] {
        result = ask();
        return result == 0 && status == 0;
      },
      [&] { return key_of(wanted.client, wanted.object); });
  if (!has_room) status = kNoMemory;
  return result;
}

template <typename Ask>
int allocate_object(void* argument, size_t size, Ask ask) {
  auto& wanted = *static_cast<Allocate*>(argument);
  const size_t offset = status_offset(size);
  if (offset == 0 || wanted.object_class != kDeviceMemory || wanted.parameters == 0) return ask();
  if (size == sizeof wanted && (wanted.flags & kIsSerialized) != 0) return ask();
  const auto& memory = *reinterpret_cast<const MemoryParameters*>(wanted.parameters);
  if ((memory.flags & kAddressesAlone) != 0) return ask();
  auto& status = *reinterpret_cast<uint32_t*>(static_cast<char*>(argument) + offset);
  return allocate_by(wanted, memory.size, status, ask);
}

template <typename Ask>
int allocate_on_heap(HeapControl& wanted, Ask ask) {
  if (wanted.function != kAllocateSize || (wanted.attributes & kLocation) != 0 ||
      (wanted.flags & kAddressesAlone) != 0) {
    return ask();
  }
  return allocate_by(wanted, wanted.size, wanted.status, ask);
}

template <typename Ask>
int release(Free& unwanted, Ask ask) {
  Process* const process = Process::known();
  // This must precede the call: RM may give the handle to another thread at once.
  const DriverBuffers::Entry buffer =
      process != nullptr ? process->rm_memory.take(key_of(unwanted.client, unwanted.object))
                         : DriverBuffers::Entry{};
  if (buffer.key == 0) return ask();
  const InFlightScope in_flight(*process);
  const int result = ask();
  if (result == 0 && unwanted.status == 0) {
    KernelMemory(*process, buffer.device_index, current_call).given_back(buffer);
  } else {
    process->rm_memory.enter(buffer);
  }
  return result;
}

int watched_ioctl(int fd, unsigned long request, void* argument) {
  const auto ask = [&] {
    return reinterpret_cast<Ioctl>(next_ioctl.load(std::memory_order_acquire))(fd, request,
                                                                               argument);
  };
  const size_t size = request >> 16 & 0x3fff;
  if ((request >> 8 & 0xff) != kType || argument == nullptr) return ask();
  switch (request & 0xff) {
    case kAllocate:
      return allocate_object(argument, size, ask);
    case kHeapControl:
      return size >= sizeof(HeapControl)
                 ? allocate_on_heap(*static_cast<HeapControl*>(argument), ask)
                 : ask();
    case kFree:
      return size == sizeof(Free) ? release(*static_cast<Free*>(argument), ask) : ask();
    default:
      return ask();
  }
}

}  // namespace

void watch_kernel_calls() {
  if (next_ioctl.load(std::memory_order_acquire) != nullptr || !driver_library.resolve()) return;
  const elf::Loaded driver = elf::find_object(
      [](const elf::Loaded& object) { return driver_library.contains(object.dynamic); });
  if (driver.dynamic == nullptr) return;
  elf::replace_import(driver, "ioctl", reinterpret_cast<void*>(&watched_ioctl), next_ioctl);
}

bool kernel_calls_are_watched(int device_index) {
  return device_index >= 0 && parents.have(device_index);
}

bool kernel_calls_are_watched(Process& process) {
  Context context;
  return current_context(process, context) && kernel_calls_are_watched(context.device_index);
}

KernelCall::KernelCall(Process& process, int device_index, Charge charge, uint64_t units)
    : process_(process),
      device_index_(device_index),
      charge_(charge),
      left_(units),
      outer_(std::exchange(current_call, this)) {}

KernelCall::~KernelCall() {
  current_call = outer_;
  const uint64_t unused = excess_ + (charge_ == Charge::at_once ? left_ : 0);
  if (unused > 0) process_.ledger.release(device_index_, unused);
}

uint64_t KernelCall::take_excess() {
  return std::exchange(excess_, 0);
}

}  // namespace fracgpu::cuda
