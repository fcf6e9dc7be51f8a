// This process as a member of its tenant: configuration, ledger, and live allocations.
//
// Made at the first GPU call that needs it, never by the constructor, and made anew in a forked
// child, which has no holdings: the pointer to it lies in a page that the kernel wipes at fork.
// Where no cap is configured nothing is made and every hook passes straight through.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/block_cache.h"
#include "shim/call_sites.h"
#include "shim/ceiling.h"
#include "shim/context_table.h"
#include "shim/graph_table.h"
#include "shim/imports.h"
#include "shim/ledger.h"
#include "shim/limits.h"
#include "shim/live_map.h"
#include "shim/physical_table.h"
#include "shim/pool_table.h"
#include "shim/report.h"
#include "shim/spin_lock.h"

namespace fracgpu {

enum class CapAnswer { no, yes, unknown };
extern std::atomic<CapAnswer> cap_answer;

// Finds out whether FRACGPU_MEMORY_LIMIT or the ceiling file is there, well-formed or not: one look
// at the environment and one system call. For the constructor.
[[gnu::cold]] bool look_for_cap();

// As it was when the library was loaded.
inline bool cap_is_configured() {
  const CapAnswer answer = cap_answer.load(std::memory_order_relaxed);
  return answer == CapAnswer::unknown ? look_for_cap() : answer == CapAnswer::yes;
}

// What FRACGPU_MEMORY_LIMIT and the ceiling file together say.
class Configuration {
 public:
  // False with `error` set when either is malformed or the file cannot be trusted.
  bool read(Message& error);

  // The cap in bytes, UINT64_MAX where the device is not capped.
  uint64_t cap_for(const DeviceName& device, uint64_t physical) const;

  bool selects_by(Selector::Kind kind) const {
    return asked_.selects_by(kind) || ceiling_.selects_by(kind);
  }

  // Everything about the device that the selectors want to know. False with `error` set when some
  // of it cannot be found out.
  bool name_device(const char* device_key, DeviceName& device, Message& error) const;

  // A selector that names no device of this machine, or empty.
  std::string_view unknown_selector() const;

 private:
  Limits asked_;    // empty: FRACGPU_MEMORY_LIMIT is not set
  Limits ceiling_;  // empty: there is no ceiling file
};

// Memory of one device that no call asked for by size: contexts, modules, the driver's heaps.
struct ImplicitMemory {
  std::atomic<uint64_t> units{0};    // charged so far
  std::atomic<uint64_t> pending{0};  // reserved for contexts that are being made
  // Charged for what exported pools may have let go of; the next reading takes it over.
  std::atomic<uint64_t> left{0};
  std::atomic<uint64_t> read_again_ms{0};  // when a refusal may read the truth next
  // Under cold_paths:
  uint64_t exported = 0;  // the most of `units` that others may hold
  uint64_t passing = 0;   // of `units`: added since the last reading, and gone unless that tells
  bool exact = true;      // `units` comes from the truth, and nothing was added to it since
  uint64_t largest_growth = 0;  // units; the most that a call other than a context was seen to take
};

// A device as the tenant may see it, in bytes.
struct TenantView {
  uint64_t cap = 0;
  uint64_t used = 0;
};

class Process {
 public:
  // The calling process, or null when no cap is configured.
  static Process* self() {
    Process* const made = known();
    if (made != nullptr) return made;
    return cap_is_configured() ? make_self() : nullptr;
  }
  // The same, but null where no call has needed it yet.
  static Process* known() {
    const ForkPage* const page = fork_page_.load(std::memory_order_acquire);
    return page != nullptr ? page->process.load(std::memory_order_acquire) : nullptr;
  }

  // Why nothing may be allocated, or empty when all is well. Set when the limit is malformed or
  // the ledger cannot be made or trusted.
  const Message& fault() const { return fault_; }

  static constexpr int kNotCapped = -1;
  static constexpr int kFault = -2;

  // The ledger's row of a device, or kNotCapped, or kFault (allocations must then be refused).
  // `physical` is the vendor's own figure, used where the truth has none. `slot` stands for the
  // device in this process, for caching: each vendor has some, one per device that it numbers.
  int row_of_device(int slot, const char* device_key, uint64_t physical);
  int cached_row(int slot) const { return rows_[slot].load(std::memory_order_acquire); }
  void forget_row(int slot) { rows_[slot].store(kUnknownRow, std::memory_order_release); }
  static constexpr int kSlotsOfVendor = 64;
  static constexpr int kNvidiaSlots = 0, kAmdSlots = kSlotsOfVendor;
  static constexpr int kUnknownRow = -3;

  // Joins the tenant's ledger, once. False, with fault() set, when that is not possible.
  bool join();

  Ledger ledger;
  const bool keeps_call_sites =
      logs(Level::info);  // read by every allocation, so close to `ledger`
  LiveMap allocations;
  PoolTable pools;
  GraphTable graphs;
  PhysicalTable physical;
  Imports imports;
  ContextTable contexts;
  BlockCache blocks[layout::kMaxDevices][BlockCache::kPools];
  Configuration configuration;
  ImplicitMemory implicit[layout::kMaxDevices];
  std::atomic<uint32_t> managed_count{0};  // live allocations of managed memory that HIP made
  std::atomic<uint32_t> small_arrays{0};   // live ones, which share chunks with linear memory
  std::atomic<uint32_t> disturbances{0};   // under way; see Disturbance
  std::atomic<uint64_t> disturbed{0};      // how many there have been
  SpinLock counting;                       // serialises `tell_allocations`
  SpinLock cold_paths;                     // serialises readings of the truth within the process
  SpinLock limits;                         // serialises changes of the driver's limits
  RateLimit refusals_said;
  CallSites call_sites;

  // Bytes held by the whole tenant on a device row, the dead left out (looked for at most every
  // few milliseconds: looking costs system calls).
  uint64_t tenant_held(int row);

  bool has_joined() const { return joined_.load(std::memory_order_acquire) > 0; }

  // What a tool is to be shown of a device; see Observation. False when the device is not capped.
  bool view(const char* device_key, uint64_t physical, TenantView& view);

 private:
  // A page that a forked child finds zeroed (MADV_WIPEONFORK), and a vfork child shares. It detects
  // every child with memory of its own, also those of raw clone() that run no atfork handler.
  struct ForkPage {
    std::atomic<Process*> process;
    SpinLock making;
  };
  static inline std::atomic<ForkPage*> fork_page_{nullptr};

  Process();
  [[gnu::cold]] static Process* make_self();
  static ForkPage* make_fork_page();
  int register_device(const char* device_key, uint64_t physical);
  void fail(const Message& why);

  Message fault_;
  std::atomic<int> joined_{0};  // 0 not yet, 1 yes, -1 failed
  SpinLock joining_;
  SpinLock registering_;
  std::atomic<int> rows_[2 * kSlotsOfVendor];
  std::atomic<uint64_t> next_reap_ms_{0};
};

// Set while the shim is inside a hook on this thread: what a driver calls through its own exports
// meanwhile is its own business, and must be neither charged nor capped a second time.
class HookScope {
 public:
  HookScope() : outermost_(!inside) { inside = true; }
  ~HookScope() {
    if (outermost_) inside = false;
  }
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;

  bool outermost() const { return outermost_; }

  // A call of the library in which it may call the program back: what that calls is its own again.
  class Callback {
   public:
    Callback() : inside_(inside) { inside = false; }
    ~Callback() { inside = inside_; }
    Callback(const Callback&) = delete;
    Callback& operator=(const Callback&) = delete;

   private:
    bool inside_;
  };

 private:
  [[gnu::tls_model("initial-exec")]] static inline thread_local bool inside = false;
  bool outermost_;
};

}  // namespace fracgpu
