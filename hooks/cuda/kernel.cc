// Stands between libcuda and the C library's ioctl; see kernel.h.
//
// Only the imports of libcuda and of NVIDIA's other libraries (other_libraries.cc) are changed, so
// no other code of the process calls these functions.
//
// libcuda holds its own locks during these calls. So this code must not wait for
// `Process::cold_paths`, or for another lock under which this library calls libcuda. It reserves
// memory in the ledger, and counts it in `Overhead::unasked` until a reading takes it over.
#include "hooks/cuda/kernel.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <string_view>
#include <utility>

#include "hooks/cuda/hook.h"
#include "hooks/cuda/rm.h"
#include "hooks/cuda/streams.h"
#include "shim/base/import_slot.h"
#include "shim/charge/driver_memory.h"
#include "shim/charge/in_flight.h"
#include "shim/charge/linear.h"
#include "shim/charge/overhead.h"
#include "shim/charge/overhead_reading.h"
#include "shim/charge/refusal.h"
#include "shim/charge/vmm_calls.h"

namespace fracgpu::cuda {
namespace {

using Ioctl = int (*)(int fd, unsigned long request, void* argument);

[[gnu::tls_model("initial-exec")]] constinit thread_local KernelCall* current_call = nullptr;
// The requests that were refused last. Libraries retry several times, and only the first refusal is
// reported.
[[gnu::tls_model("initial-exec")]] constinit thread_local const RmRequests* refused_last = nullptr;
[[gnu::tls_model("initial-exec")]] constinit thread_local uint64_t asked_given_back = 0;
[[gnu::tls_model("initial-exec")]] constinit thread_local PoolSharing* pool_sharing = nullptr;

// The parents of libcuda's memory, which are RM's device objects. A KernelCall names the device, so
// a parent's device is learned inside one. Entries are read without a lock and never removed.
class Parents {
 public:
  // Returns the parent's device. Enters `device_index` if the parent is not known yet.
  int learn(uint64_t parent, int device_index) {
    for (Entry& each : entries_) {
      uint64_t seen = 0;
      // A parent is never seen without its device. Two threads may enter the same one twice.
      if (each.parent.compare_exchange_strong(seen, kBeingEntered)) {
        each.device_index.store(device_index, std::memory_order_relaxed);
        each.parent.store(parent, std::memory_order_release);
        return device_index;
      }
      if (seen == parent) return each.device_index.load(std::memory_order_relaxed);
    }
    return Process::kNotCapped;
  }

  int device_of(uint64_t parent) const {
    for (const Entry& each : entries_) {
      const uint64_t seen = each.parent.load(std::memory_order_acquire);
      if (seen == parent) return each.device_index.load(std::memory_order_relaxed);
      if (seen == 0) break;
    }
    return Process::kNotCapped;
  }

  bool have(int device_index) const {
    for (const Entry& each : entries_) {
      if (each.parent.load(std::memory_order_acquire) == 0) break;
      if (each.device_index.load(std::memory_order_relaxed) == device_index) return true;
    }
    return false;
  }

 private:
  static constexpr uint64_t kBeingEntered = 1;  // no key: RM's handles are larger
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
  // `call`: the KernelCall for this device, or null.
  KernelMemory(Process& process, int device_index, KernelCall* call)
      : process_(process), device_index_(device_index), call_(call) {}

  // False if the cap has no room.
  bool reserve(uint64_t bytes, const RmRequests& requests) {
    if (call_ != nullptr && call_->charge_ == KernelCall::Charge::refused) return false;
    units_ = layout::units_for(bytes);
    stocked_ = call_ != nullptr ? std::min(call_->left_, units_) : 0;
    Refusal own;
    Refusal& refusal = call_ != nullptr ? call_->refusal_ : own;
    const auto fits = [&] {
      return process_.ledger.reserve(device_index_, units_ - stocked_, refusal);
    };
    if (units_ == stocked_ || fits()) return true;
    if (refusal.fault.empty() && give_back_closed_exports(process_) && fits()) return true;
    if (call_ != nullptr) {
      call_->refused_ = units_ - stocked_;
      return false;
    }
    if (refusal.fault.empty() && requests.may_read_usage(process_) &&
        charge_by_usage(process_, device_index_, units_)) {
      return true;
    }
    if (refused_last != &requests)
      report_refusal(process_, device_index_, {requests.api(), bytes}, refusal);
    refused_last = &requests;
    return false;
  }

  void refused_by_driver() { process_.ledger.release(device_index_, units_ - stocked_); }

  // RM has taken `bytes`.
  void taken(uint64_t key, uint32_t parent, uint64_t bytes) {
    settle(layout::units_for(bytes));
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
    process_.rm_memory.enter(
        {.key = key,
         .units = units_,
         .device_index = device_index_,
         .is_charged = at_once,
         .is_asked = call_ != nullptr && call_->charge_ == KernelCall::Charge::as_asked,
         .parent = parent});
    refused_last = nullptr;
  }

  // Accounts for `buffer`, which RM got back.
  void given_back(const DriverBuffers::Entry& buffer) {
    if (buffer.is_import) return give_back_import(process_, buffer.key);
    if (call_ != nullptr) call_->has_changed_ = true;
    if (buffer.is_asked) {
      asked_given_back += buffer.units;
      if (buffer.is_exported) keep_chunk(buffer);
      return;
    }
    const auto units = static_cast<int64_t>(buffer.units);
    const bool told = is_told(process_, device_index_);
    const bool is_held = call_ != nullptr && call_->charge_ == KernelCall::Charge::as_overhead;
    // A hook without a KernelCall accounts for all that its call has changed.
    const bool is_seen_here_alone = call_ != nullptr || !HookScope::any();
    if (is_held) {
      // The driver frees a context's local memory before it takes the new one.
      call_->left_ += buffer.units;
      if (!buffer.is_charged && !told) return;
      call_->excess_ += buffer.units;
      add_unasked(-units);
    } else if (buffer.is_charged || (told && is_seen_here_alone)) {
      add_unasked(-units);
      release(buffer);
    }
  }

 private:
  // What descriptors or importers hold stays charged. No reading is made under the libraries'
  // locks.
  void release(const DriverBuffers::Entry& buffer) {
    if (!buffer.is_exported) {
      process_.ledger.release(device_index_, buffer.units);
      return;
    }
    keep_freed(buffer);
    give_back_closed_exports(process_);
  }

  void keep_freed(const DriverBuffers::Entry& buffer) {
    const uint64_t token = export_token(buffer);
    note_freed_export(process_, token, device_index_);
    process_.open_exports.keep_until_freed(token, device_index_, buffer.units);
  }

  // A chunk of an exported pool stays charged while descriptors or importers hold it. The next
  // settlement takes it off the pool's charge.
  void keep_chunk(const DriverBuffers::Entry& buffer) {
    process_.overhead[device_index_].counted_twice.fetch_add(buffer.units);
    keep_freed(buffer);
  }

  // Adjusts the reservation to the units that RM has taken.
  void settle(uint64_t units) {
    if (units > units_) process_.ledger.charge_taken(device_index_, units - units_);
    if (units < units_) {
      const uint64_t reserved = units_ - stocked_;
      process_.ledger.release(device_index_, std::min(reserved, units_ - units));
      stocked_ = std::min(stocked_, units);
    }
    units_ = units;
  }

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

// libcuda's requests. A KernelCall charges, or names the device.
class LibcudaRequests : public RmRequests {
 public:
  constexpr LibcudaRequests() : RmRequests("CUDA driver allocation") {}

  Payer payer_of(Process* process, uint64_t parent) override {
    KernelCall* const call = current_call;
    const int device_index = process == nullptr ? Process::kNotCapped
                             : call != nullptr  ? learn(*process, parent, call->device_index())
                                                : parents.device_of(parent);
    if (call == nullptr && HookScope::any())
      return {.device_index = Process::kNotCapped, .asked_on = device_index};
    return {device_index, call_for(device_index)};
  }
  KernelCall* call_for(int device_index) override {
    KernelCall* const call = current_call;
    return call != nullptr && call->device_index() == device_index ? call : nullptr;
  }

 private:
  static int learn(Process& process, uint64_t parent, int device_index) {
    const int learnt = parents.learn(parent, device_index);
    if (learnt >= 0) process.overhead[learnt].is_watched.store(true, std::memory_order_relaxed);
    return learnt;
  }
};
constinit LibcudaRequests libcuda_requests;

// Handles a request for device memory. `ask()` returns whether RM granted it; `key()` is then the
// new object's key, and `taken()` what RM took in bytes. False if the cap had no room.
template <typename Ask, typename Key, typename Taken>
bool allocate(RmRequests& requests, uint64_t parent, uint64_t bytes, Ask ask, Key key,
              Taken taken) {
  Process* const process = Process::known();
  const RmRequests::Payer payer = requests.payer_of(process, parent);
  if (payer.device_index == Process::kFault && process != nullptr) {
    report_fault(*process, requests.api());
    return false;
  }
  if (payer.device_index < 0) {
    if (process == nullptr || payer.asked_on < 0) {
      if (ask() && process != nullptr) requests.given_out(*process, key());
      return true;
    }
    const InFlightScope in_flight(*process);
    if (!ask()) return true;
    requests.given_out(*process, key());
    process->rm_memory.enter({.key = key(),
                              .units = layout::units_for(taken()),
                              .device_index = payer.asked_on,
                              .is_charged = false,
                              .is_asked = true,
                              .parent = static_cast<uint32_t>(parent)});
    return true;
  }
  KernelMemory memory(*process, payer.device_index, payer.call);
  if (!memory.reserve(bytes, requests)) return false;
  const InFlightScope in_flight(*process);
  if (ask()) {
    requests.given_out(*process, key());
    memory.taken(key(), static_cast<uint32_t>(parent), taken());
  } else {
    memory.refused_by_driver();
  }
  return true;
}

// Calls `allocate` for one of RM's request structures, whose `size` RM writes too. Writes a refusal
// to its `status`.
template <typename Wanted, typename Ask>
int allocate_by(RmRequests& requests, Wanted& wanted, const uint64_t& size, uint32_t attributes,
                uint32_t& status, Ask ask) {
  int result = 0;
  const bool has_room = allocate(
      requests, rm::key_of(wanted.client, wanted.parent), rm::size_in_pages(size, attributes),
      [&] {
        result = ask();
        return result == 0 && status == 0;
      },
      [&] { return rm::key_of(wanted.client, wanted.object); }, [&] { return size; });
  if (!has_room) status = rm::kNoMemory;
  return result;
}

template <typename Ask>
int allocate_object(RmRequests& requests, void* argument, size_t size, Ask ask) {
  auto& wanted = *static_cast<rm::Allocate*>(argument);
  const size_t offset = rm::status_offset(size);
  if (offset == 0 || wanted.object_class != rm::kDeviceMemory || wanted.parameters == 0)
    return ask();
  if (size == sizeof wanted && (wanted.flags & rm::kIsSerialized) != 0) return ask();
  const auto& memory = *reinterpret_cast<const rm::MemoryParameters*>(wanted.parameters);
  if ((memory.flags & rm::kAddressesAlone) != 0) return ask();
  auto& status = *reinterpret_cast<uint32_t*>(static_cast<char*>(argument) + offset);
  return allocate_by(requests, wanted, memory.size, memory.attributes, status, ask);
}

// RM frees the object with this key if `ask()` succeeds and leaves 0 in `status`.
template <typename Ask>
int release(RmRequests& requests, uint64_t key, const uint32_t& status, Ask ask) {
  Process* const process = Process::known();
  if (process == nullptr) return ask();
  // A reading must not see the memory gone from the table and still charged.
  const InFlightScope in_flight(*process);
  // This must precede the call: RM may give the handle to another thread at once.
  const DriverBuffers::Entry buffer = process->rm_memory.take(key);
  if (buffer.key == 0) return ask();
  const int result = ask();
  if (result == 0 && status == 0) {
    KernelMemory(*process, buffer.device_index, requests.call_for(buffer.device_index))
        .given_back(buffer);
  } else {
    process->rm_memory.enter(buffer);
  }
  return result;
}

template <typename Ask>
int control_heap(RmRequests& requests, rm::HeapControl& wanted, Ask ask) {
  if (wanted.function == rm::kFreeMemory)
    return release(requests, rm::key_of(wanted.client, wanted.object), wanted.status, ask);
  const bool takes_memory = wanted.function == rm::kAllocateSize &&
                            (wanted.attributes & rm::kLocation) == 0 &&
                            (wanted.flags & rm::kAddressesAlone) == 0;
  return takes_memory
             ? allocate_by(requests, wanted, wanted.size, wanted.attributes, wanted.status, ask)
             : ask();
}

// Imported memory is charged to its exporter, or to the exporter's tenant while this process has
// it.
void enter_import(RmRequests& requests, Process& process, ImportCall& call, uint64_t key,
                  int device_index, uint32_t parent, uint64_t units = 0) {
  requests.given_out(process, key);
  call.imported(key, device_index, units);
  process.rm_memory.enter({.key = key,
                           .device_index = device_index,
                           .is_charged = false,
                           .is_import = true,
                           .parent = parent});
}

template <typename Ask>
int import_object(RmRequests& requests, rm::Control& asked, Ask ask) {
  Process* const process = Process::known();
  if (process == nullptr) return ask();
  auto& wanted = *reinterpret_cast<rm::ImportFromFd*>(asked.parameters);
  const auto index_of = [&](uint32_t object) {
    return requests.payer_of(process, rm::key_of(asked.client, object)).device_index;
  };
  int device_index = index_of(wanted.imported.parent);
  if (device_index < 0) device_index = index_of(wanted.imported.device);
  if (device_index < 0) return ask();
  ImportCall call(*process, wanted.fd);
  const int result = ask();
  if (result != 0 || asked.status != 0) return result;
  enter_import(requests, *process, call, rm::key_of(asked.client, wanted.imported.object),
               device_index, wanted.imported.parent);
  return result;
}

// The same, but marks the descriptor if libcuda exports a pool to it. The kernel may refuse the
// mark.
uint32_t list_pool(Process& process, int fd) {
  static constinit std::atomic<uint32_t> last{0};
  constexpr uint32_t kMost = (uint32_t{1} << 30) - 1;
  DescriptorMark marked;
  if (pool_sharing == nullptr || !process.has_joined() || read_mark(fd, marked))
    return listed_pool(process, fd);
  mark_descriptor(fd, {.tenant = layout::mark_of(process.ledger.map()->header),
                       .exporter = process.ledger.mark_of_self(),
                       .objects = last.fetch_add(1) % kMost + 1});
  const uint32_t pool = listed_pool(process, fd);
  if (pool != 0)
    process.open_exports.watch(fd, OpenExports::token_of(OpenExports::Of::objects, pool));
  return pool;
}

void note_exported_objects(Process& process, uint32_t client,
                           const rm::ExportObjectsToFd& exported) {
  const uint32_t pool = list_pool(process, exported.fd);
  if (pool == 0) return;
  const DescriptorMark mark{.exporter = process.ledger.mark_of_self(), .objects = pool};
  const size_t count = std::min<size_t>(exported.count, std::size(exported.objects));
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t place = exported.index + i;
    const DriverBuffers::Entry chunk =
        process.rm_memory.find(rm::key_of(client, exported.objects[i]));
    const uint64_t token =
        list_buffer(process, process.rm_memory, chunk, OpenExports::Of::driver_memory);
    process.ledger.note_handle(hash_of_object(mark, place), number_of_export(process, token));
    process.open_exports.hold(pool, place, token);
  }
}

template <typename Ask>
int import_objects(RmRequests& requests, rm::Control& asked, Ask ask) {
  Process* const process = Process::known();
  if (process == nullptr) return ask();
  const auto& wanted = *reinterpret_cast<const rm::ImportObjectsFromFd*>(asked.parameters);
  const RmRequests::Payer payer =
      requests.payer_of(process, rm::key_of(asked.client, wanted.parent));
  const int device_index = std::max(payer.device_index, payer.asked_on);
  DescriptorMark mark;
  if (device_index < 0 || !read_mark(wanted.fd, mark) || mark.objects == 0) {
    if (pool_sharing != nullptr) pool_sharing->note_unentered();
    return ask();
  }
  const InFlightScope in_flight(*process);
  const ImportCall under_way(*process, mark);
  const int result = ask();
  if (result != 0 || asked.status != 0) return result;
  const size_t count = std::min<size_t>(wanted.count, std::size(wanted.objects));
  for (uint32_t i = 0; i < count; ++i) {
    if (wanted.objects[i] == 0 || wanted.types[i] == 0) continue;
    ImportCall call(*process, mark, wanted.index + i);
    // A chunk that is not listed counts with libcuda's usual size.
    enter_import(requests, *process, call, rm::key_of(asked.client, wanted.objects[i]),
                 device_index, wanted.parent, kPoolChunkBytes / layout::kUnit);
  }
  return result;
}

// RM has done what was asked.
void note_export_of(const rm::Control& asked) {
  Process* const process = Process::known();
  if (process == nullptr) return;
  if (rm::is<rm::CreateObjectsFd>(asked)) {
    list_pool(*process, reinterpret_cast<const rm::CreateObjectsFd*>(asked.parameters)->fd);
  } else if (rm::is<rm::ExportObjectsToFd>(asked)) {
    note_exported_objects(*process, asked.client,
                          *reinterpret_cast<const rm::ExportObjectsToFd*>(asked.parameters));
  }
}

int watched_ioctl(int fd, unsigned long request, void* argument) {
  return libcuda_requests.watch(fd, request, argument);
}

}  // namespace

int RmRequests::ask(int fd, unsigned long request, void* argument) {
  return reinterpret_cast<Ioctl>(next_ioctl.load(std::memory_order_acquire))(fd, request, argument);
}

int RmRequests::watch(int fd, unsigned long request, void* argument) {
  const auto ask_rm = [&] { return ask(fd, request, argument); };
  if (!rm::is_rms(request) || argument == nullptr) return ask_rm();
  const size_t size = rm::size_of(request);
  switch (request & 0xff) {
    case rm::kAllocate:
      return allocate_object(*this, argument, size, ask_rm);
    case rm::kHeapControl:
      return size >= sizeof(rm::HeapControl)
                 ? control_heap(*this, *static_cast<rm::HeapControl*>(argument), ask_rm)
                 : ask_rm();
    case rm::kControl: {
      auto& asked = *static_cast<rm::Control*>(argument);
      if (size != sizeof asked) return ask_rm();
      if (rm::is<rm::ImportFromFd>(asked)) return import_object(*this, asked, ask_rm);
      if (rm::is<rm::ImportObjectsFromFd>(asked)) return import_objects(*this, asked, ask_rm);
      const int result = ask_rm();
      if (result == 0 && asked.status == 0) note_export_of(asked);
      return result;
    }
    case rm::kFree: {
      if (size != sizeof(rm::Free)) return ask_rm();
      const auto& unwanted = *static_cast<const rm::Free*>(argument);
      return release(*this, rm::key_of(unwanted.client, unwanted.object), unwanted.status, ask_rm);
    }
    default:
      return ask_rm();
  }
}

uint64_t asked_units_given_back() {
  return asked_given_back;
}

void give_back_rm_memory(Process& process, const DriverBuffers::Entry& buffer) {
  KernelMemory(process, buffer.device_index, nullptr).given_back(buffer);
}

PoolSharing::PoolSharing() {
  pool_sharing = this;
}

PoolSharing::~PoolSharing() {
  pool_sharing = nullptr;
}

uint32_t listed_pool(Process& process, int fd) {
  DescriptorMark mark;
  const bool is_own =
      process.has_joined() && read_mark(fd, mark) && Imports::is_of_self(process.ledger, mark);
  return is_own ? mark.objects : 0;
}

void watch_kernel_calls() {
  if (libcuda_requests.next_ioctl.load(std::memory_order_acquire) != nullptr ||
      !driver_library.resolve()) {
    return;
  }
  const elf::Loaded driver = elf::find_object(
      [](const elf::Loaded& object) { return driver_library.contains(object.dynamic); });
  if (driver.dynamic == nullptr) return;
  elf::replace_import(driver, "ioctl", reinterpret_cast<void*>(&watched_ioctl),
                      libcuda_requests.next_ioctl);
}

bool kernel_calls_are_watched(int device_index) {
  return device_index >= 0 && parents.have(device_index);
}

bool kernel_calls_are_watched(Process& process) {
  Context context;
  return current_context(process, context) && kernel_calls_are_watched(context.device_index);
}

bool trim_driver(const char* device_key) {
  Process* const process = Process::known();
  // Another thread must not end the context during these calls, of which the program does not know.
  if (process == nullptr || !process->streams.begin_wait()) return false;
  Context context;
  bool has_trimmed = false;
  if (current_context(*process, context) && kernel_calls_are_watched(context.device_index) &&
      process->ledger.map()->devices[context.device_index].key == std::string_view(device_key)) {
    const OwnCalls own_calls(*process);
    constexpr size_t kBytes = 16 * kPageBytes;  // more than a chunk that libcuda keeps unused
    constexpr int kMost = 64;                   // libcuda gives back a part each time
    for (int i = 0; i < kMost; ++i) {
      KernelCall call(*process, context.device_index, KernelCall::Charge::refused);
      CUdeviceptr memory = 0;
      if (real::cuMemAlloc_v2(&memory, kBytes) == kSuccess) real::cuMemFree_v2(memory);
      if (!call.has_changed()) break;
      has_trimmed = true;
    }
  }
  process->streams.end_wait();
  return has_trimmed;
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
