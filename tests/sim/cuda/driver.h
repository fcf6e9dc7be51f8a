// The state of the simulated CUDA driver within one process: devices, contexts and memory ranges.
// Exported functions are grouped by family, a file each; each begins with SIM_CALL, which runs
// ordered failures and refuses calls before cuInit and in forked children. All state is behind one
// lock per process.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "sim/cuda/abi.h"
#include "sim/cuda/array_table.h"
#include "sim/cuda/chunk.h"
#include "sim/cuda/graph_table.h"
#include "sim/cuda/pool_table.h"
#include "sim/cuda/reused.h"
#include "sim/cuda/space.h"
#include "sim/cuda/stream_table.h"
#include "sim/cuda/vmm.h"
#include "sim/node/account.h"
#include "sim/node/inject.h"
#include "sim/node/mig.h"

namespace sim {

struct Context;

// A run of pages: one large allocation, one chunk of small ones, or addresses that cost nothing: an
// import, a global of a module, a buffer of external memory.
struct Range {
  enum class Type : uint8_t { kLarge, kChunk, kImport, kGlobal, kExternal };
  bool owns() const { return type <= Type::kChunk; }
  int heap() const {
    return array ? 3 : managed ? 2 : low ? 1 : 0;
  }  // of a chunk: see Context::small

  Type type = Type::kLarge;
  bool low = false;
  bool managed = false;
  bool array = false;
  uint64_t address = 0;
  uint64_t pages = 0;
  uint64_t bytes = 0;  // as asked for
  Physical physical;
  Context* context = nullptr;
  Range* next = nullptr;
  Range* previous = nullptr;
  uint32_t chunk = 0;
  uint32_t references = 0;  // of an import
  uint64_t import_offset = 0;
  uint64_t serial = 0;
};

// The limits of a context that say how much memory it takes beyond its fixed cost.
enum : int {
  kStackSize = 0,
  kPrintfFifoSize = 1,
  kMallocHeapSize = 2,
  kSyncDepth = 3,  // of the device runtime
  kLimits = 8
};
inline constexpr int kResidentThreads = 2048;    // of one multiprocessor
inline constexpr size_t kMostStack = 512 << 10;  // of one thread
inline constexpr size_t kDefaultLimits[kLimits] = {1024, 1 << 20, 8 << 20, 2, 2048, 64, 0, 0};

struct Context {
  // Whose memory it is: a green context has none of its own.
  // A branch and no selection, because every allocation waits for the answer.
  Context* owner() {
    if (green) [[unlikely]]
      return parent;
    return this;
  }

  bool alive = false;
  bool spare = false;  // no handle: the next one made
  bool green = false;
  bool primary = false;
  int device = 0;   // of the node
  int ordinal = 0;  // as the program counts
  unsigned flags = 0;
  unsigned references = 0;
  unsigned current_to = 0;  // places on the stacks of threads
  unsigned api_version = 3020;
  uint64_t id = 0;
  uint64_t grown_bytes = 0;   // taken later on: modules, limits, launches
  uint64_t kept_bytes = 0;    // of `grown_bytes`: of modules that were unloaded, for the next ones
  bool launched = false;      // a kernel has been
  uint32_t streams = 0;       // that live
  uint32_t most_streams = 0;  // that ever lived at once
  size_t limit[kLimits] = {};
  Context* parent = nullptr;  // of a green context: the primary one
  Range* ranges = nullptr;
  std::unique_ptr<SmallHeap> small[4];  // above and below 4 GiB, managed, and of arrays
};

// What is at a device address, whoever keeps it.
struct Found {
  Range* range = nullptr;      // of plain memory
  Context* context = nullptr;  // null for memory that belongs to no context
  CUdevice ordinal = 0;
  uint64_t base = 0;
  uint64_t bytes = 0;
  uint64_t id = 0;
  uint64_t chunk = 0;  // size of the physical memory that a pool's pointer is in
  bool managed = false;
  bool accessible = true;  // from the current context's device
  CUmemoryPool pool = nullptr;
};

class Driver {
 public:
  static Driver& get();

  CUresult init();
  int device_count() const { return static_cast<int>(visible_.size()); }
  bool valid(CUdevice dev) const { return dev >= 0 && dev < device_count(); }
  int physical(CUdevice dev) const { return visible_[static_cast<size_t>(dev)]; }
  const DeviceRow& row(CUdevice dev) { return account_->node().device(physical(dev)); }
  // The MIG device that the process has; none where `dev` is negative.
  const MigDevice& mig_device() const { return mig_device_; }
  Account& account() { return *account_; }
  Node& node() { return account_->node(); }

  // The functions below want lock() held.
  std::mutex& lock() { return mutex_; }
  Context& primary(CUdevice dev) { return primary_[dev]; }
  CUresult make_context(CUdevice dev, unsigned flags, Context** out);
  // A green context of the device's primary one, which it brings to life and retains.
  CUresult make_green(CUdevice dev, Context** out);
  CUresult activate(Context* context);
  void deactivate(Context* context);
  bool known(const Context* context) const;
  // Makes it current to this thread, and the one before current again.
  CUresult push(Context* context);
  void pop();
  // Its handle goes to the next context that is made, unless it lives or is current to some thread.
  void recycle(Context* context);
  // What a context takes and gives back while it lives; all of it ends with the context.
  bool grow(Context* context, uint64_t bytes);
  void shrink(Context* context, uint64_t bytes);

  CUresult allocate(Context* context, uint64_t bytes, bool low, bool managed, uint64_t* out,
                    bool array = false);
  CUresult free(uint64_t address);
  // Managed memory comes to the device; false when there is no room.
  bool prefetch(Range* range);
  bool find(uint64_t address, Found* found);
  // A pointer to somebody else's memory, which this process holds from now on: it pays nothing.
  CUresult import(Context* context, const Physical& memory, uint64_t offset, uint64_t bytes,
                  uint64_t* out);
  CUresult close_import(uint64_t address);
  // Addresses that take no memory, until they are detached, or freed if they are external.
  CUresult attach(Context* context, Range::Type type, uint64_t bytes, uint64_t* out);
  void detach(uint64_t address) { drop_range(high_.starting_at(address)); }

  // Descriptors of shared memory; location_of() gives a negative device if it is not visible here.
  int export_memory(Physical* memory, ObjectKind kind, const CUmemLocation& location);
  CUmemLocation location_of(const Physical& memory);

  Vmm vmm;
  Streams streams;
  Pools pools;
  GraphMemory graph_memory;
  Graphs graphs;
  Arrays arrays;
  struct HostAllocation {
    size_t bytes;
    int device;  // of the context that it was made in
  };
  std::unordered_map<void*, HostAllocation> host_allocations;
  std::unordered_map<void*, size_t> host_registrations;

 private:
  Driver() = default;
  bool choose_devices();
  bool settle_for_one_instance();
  AddressSpace& space(bool low) { return low ? low_ : high_; }
  Range* new_range(Context* context, Range::Type type, uint64_t pages, bool low,
                   bool takes_memory = true);
  void drop_range(Range* range);
  Context& new_context(CUdevice dev, unsigned flags);
  void note_managed(const Range& range, int sign);
  void finish(Context* context);

  std::mutex mutex_;
  std::unique_ptr<Account> account_;
  std::vector<int> visible_;
  MigDevice mig_device_;
  Context primary_[kMaxDevices];
  // A context stays where it is, so that memory that was its own recognises it by its id.
  std::deque<Context> created_;
  std::vector<Context*> spare_contexts_;
  uint64_t next_id_ = 1;
  uint64_t next_serial_ = 1;
  // All stay clear of where Linux puts a program, so that no device pointer is ever a host pointer:
  // plain memory here, then mapped memory (vmm.h), each with its own table.
  AddressSpace high_{0x030000000000ULL, 0x230000000000ULL};
  AddressSpace low_{0x10000000ULL, 0x100000000ULL};
  std::vector<Range*> spare_ranges_;
};

// The contexts current to this thread, innermost last.
struct ThreadState {
  static constexpr int kDepth = 24;
  Context* stack[kDepth];
  int depth;
};
extern thread_local ThreadState thread_state __attribute__((tls_model("initial-exec")));

// One byte of a page that forked children see as zero: 1 after cuInit.
extern const volatile unsigned char* initialised;
// What a checkpoint has made of this process; see checkpoint.cc.
extern const std::atomic<Checkpoint>* checkpoint;
void wait_until_unlocked();

// Set when the library is loaded: FRACGPU_SIM_UNSAFE names functions; see capture_table.h.
extern const bool names_unsafe_calls;
CUresult refused_if_named_unsafe(const char* function);

inline CUresult enter(const char* function) {
  if (const int result = ordered(function)) return result;
  if (*initialised == 0) return CUDA_ERROR_NOT_INITIALIZED;
  if (checkpoint->load(std::memory_order_relaxed) != Checkpoint::kRunning) [[unlikely]] {
    wait_until_unlocked();
  }
  return names_unsafe_calls ? refused_if_named_unsafe(function) : CUDA_SUCCESS;
}

inline Context* current() {
  const ThreadState& state = thread_state;
  return state.depth > 0 ? state.stack[state.depth - 1] : nullptr;
}

// For calls that need a current context that still lives.
inline CUresult usable(Context* context) {
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return context->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

inline CUcontext handle(Context* context) {
  return reinterpret_cast<CUcontext>(context);
}
inline Context* context_of(CUcontext context) {
  return reinterpret_cast<Context*>(context);
}

// The device that a location is on, or -1. In the id of a locality domain, of which each device has
// two, the device's ordinal is the lowest byte and the domain's number the next.
inline CUdevice device_of(const CUmemLocation& location) {
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) return location.id;
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN ? location.id & 0xff : -1;
}

// A location that memory can have: a device that is there, or the host.
inline CUresult check_location(const CUmemLocation& location) {
  const bool in_domain = location.type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN;
  if (in_domain && location.id >> 8 != 0 && location.id >> 8 != 1) return CUDA_ERROR_INVALID_VALUE;
  if (in_domain || location.type == CU_MEM_LOCATION_TYPE_DEVICE)
    return Driver::get().valid(device_of(location)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
  return location.type > CU_MEM_LOCATION_TYPE_DEVICE &&
                 location.type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

// The same for the memory of a pool: what is managed may prefer none.
inline CUresult check_place(const CUmemLocation& location, int type) {
  if (type == CU_MEM_ALLOCATION_TYPE_MANAGED) {
    if (location.type == CU_MEM_LOCATION_TYPE_NONE) return CUDA_SUCCESS;
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN)
      return CUDA_ERROR_INVALID_VALUE;
  } else if (type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return check_location(location);
}

using Guard = std::lock_guard<std::mutex>;

}  // namespace sim

#define SIM_CALL(name)                                                \
  do {                                                                \
    if (const CUresult refused = ::sim::enter(#name)) return refused; \
  } while (false);                                                    \
  const ::sim::CallEnd sim_call_end(#name)

#define SIM_CONTEXT(context)                        \
  ::sim::Context* const context = ::sim::current(); \
  if (const CUresult refused = ::sim::usable(context)) return refused
