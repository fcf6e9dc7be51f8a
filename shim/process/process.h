// This process as a member of its tenant: configuration, ledger, and live allocations.
//
// Made at the first GPU call that needs it, never by the library's constructor. A forked child,
// which holds nothing, makes a new one: the pointer is in a page that the kernel wipes at fork. If
// no cap is configured, no Process is made and every hook passes straight through.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "shim/base/fork_page.h"
#include "shim/base/gate.h"
#include "shim/base/lazy_array.h"
#include "shim/base/report.h"
#include "shim/base/sleep_lock.h"
#include "shim/base/spin_lock.h"
#include "shim/config/cap_configured.h"
#include "shim/ledger/ledger.h"
#include "shim/process/configuration.h"
#include "shim/process/first_fault.h"
#include "shim/recording/recorder.h"
#include "shim/sharing/imports.h"
#include "shim/sharing/open_exports.h"
#include "shim/tracking/block_cache.h"
#include "shim/tracking/call_sites.h"
#include "shim/tracking/code_sizes.h"
#include "shim/tracking/context_table.h"
#include "shim/tracking/driver_buffers.h"
#include "shim/tracking/export_table.h"
#include "shim/tracking/graph_table.h"
#include "shim/tracking/library_table.h"
#include "shim/tracking/lingering_chunks.h"
#include "shim/tracking/live_map.h"
#include "shim/tracking/module_table.h"
#include "shim/tracking/physical_table.h"
#include "shim/tracking/pool_blocks.h"
#include "shim/tracking/pool_table.h"
#include "shim/tracking/stream_table.h"

namespace fracgpu {

// Lets calls skip the reading of the driver-reported usage, because their charge was right at every
// reading so far. The more often it was right, the more calls skip a reading.
class UnreadCalls {
 public:
  // Whether the next call may skip its reading.
  bool take() { return left_ > 0 && left_-- > 0; }
  // Takes a reading's result: `enough` was charged for the calls since the last reading.
  void judge(bool enough) {
    next_ = enough ? (next_ < kMost ? next_ * 2 : kMost) : kFirst;
    left_ = enough ? next_ : 0;
  }

 private:
  // 100,000 pairs of loads and unloads take 17 readings. Each halving of kFirst adds one (1 to 64
  // tried). A kMost of 512 makes them 396, one of 2^20 makes them 16. The larger kMost, the later a
  // reading detects that a call takes a different amount.
  static constexpr uint32_t kFirst = 8, kMost = 1u << 16;

  uint32_t left_ = 0, next_ = kFirst;
};

// The most that modules took at a reading, in units. One sample may be too small, since another
// thread may give overhead back at the same moment. Therefore only the second one lowers the
// estimate.
class LargestSeen {
 public:
  uint64_t foreseen(uint64_t estimate) const {
    return samples_ == kEnough ? most_ : std::max(most_, estimate);
  }
  uint64_t most() const { return most_; }
  bool covers(uint64_t units) const { return samples_ != 0 && units <= most_; }
  bool in_doubt(uint64_t units) const { return samples_ != kEnough || units > most_; }
  void see(uint64_t units) {
    most_ = std::max(most_, units);
    samples_ = std::min(samples_ + 1, kEnough);
  }

 private:
  static constexpr int kEnough = 2;

  uint64_t most_ = 0;
  int samples_ = 0;
};

// Units of a freed export, with its number in the ledger, that may still be part of the overhead.
struct DeferredExport {
  uint64_t key;
  uint64_t units;
  int device_index;
};

// Memory of one device that no call requests by size: contexts, modules, the driver's heaps. Only
// shim/charge writes it. Amounts are units. All of `units`, `pending` and `uncounted` is charged in
// the process's own cell of the ledger.
struct Overhead {
  // Written with Process::cold_paths held; read by any thread without it.
  std::atomic<uint64_t> units{0};     // charged so far
  std::atomic<uint64_t> pending{0};   // reserved for contexts and modules that are being made
  std::atomic<uint64_t> exported{0};  // of `units`: freed exports that may still be this process's
  // Written by any thread, without a lock. Charged for what the driver took by itself since the
  // last reading, less what it has given back of that and of `units`. The next reading adds it to
  // `units`.
  std::atomic<int64_t> unasked{0};
  // The same without a lock. Charged for memory that the driver's count of a process leaves out, so
  // that no reading shows it.
  std::atomic<uint64_t> uncounted{0};
  std::atomic<bool> has_uncounted{false};  // there was some
  // Written by any thread, without a lock. Units of exported pools' chunks that the driver has
  // freed for this process: they are in Process::open_exports, and still in the pools' charges.
  std::atomic<uint64_t> counted_twice{0};
  std::atomic<uint64_t> read_again_ms{0};  // a refusal reads again from this coarse_now_ms() on
  // Whether the last reading reported nothing. Written with Process::cold_paths held.
  std::atomic<bool> untold{false};
  std::atomic<bool> is_watched{false};  // the requests for memory to the kernel driver are seen
  std::atomic<uint64_t> stale_s{0};     // memory info reads again from this coarse_now_s() on
  // Read and written with Process::cold_paths held.
  // Overhead at the last exact reading for which no request was seen, and lingering memory that
  // was deferred to a reading since then.
  uint64_t unseen = 0;
  uint64_t unconfirmed = 0;   // of `units`: added since the last reading, not confirmed yet
  bool exact = true;          // `units` was measured, and nothing was added to it since
  LargestSeen growth;         // of modules whose images reveal no size
  LargestSeen excess;         // of the other modules, beyond the size in their images
  bool size_in_doubt = true;  // a module seemed larger, but the growth may be older than it
  UnreadCalls unread;
  uint64_t unread_arrays = 0;  // of `unconfirmed`: for live small arrays
  uint32_t arrays_gone = 0;    // small arrays destroyed since the last reading and still charged
  uint32_t readings = 1;       // number of believed readings, plus one
  bool code_is_kept = false;   // a module was unloaded: the driver may keep its memory for others
};

// A device as the tenant may see it, in bytes.
struct TenantView {
  uint64_t cap = 0;
  uint64_t used = 0;
};

class Process {
 public:
  // The calling process, or null if no cap is configured.
  static Process* self() {
    Process* const made = known();
    if (made != nullptr) return made;
    return cap_is_configured() ? make_self() : nullptr;
  }
  // The same, but null if no call has needed it yet.
  static Process* known() {
    const ForkPage* const page = fork_page.load(std::memory_order_acquire);
    return page != nullptr ? static_cast<Process*>(page->process.load(std::memory_order_acquire))
                           : nullptr;
  }

  // Why nothing may be allocated, or empty if all is well. Set if the limit is malformed or the
  // ledger cannot be made or trusted. Needs no lock; the first fault stays.
  const Message& fault() const { return fault_.get(); }

  // Why nothing may be allocated on a device that found no row in the ledger, or empty if each has
  // found one. If several devices found none, the reason of the first.
  const Message& device_fault() const { return device_fault_.get(); }

  // Whether the last refusal without a fault happened because no descriptor was free.
  bool lacked_descriptor() const { return lacked_descriptor_.load(std::memory_order_relaxed); }

  static constexpr int kNotCapped = -1;
  static constexpr int kFault = -2;

  // The ledger's device index of a device, or kNotCapped, or kFault (allocations must then be
  // refused). `physical` is the API's figure in bytes, or 0. If the driver's own tool also reports
  // one, the smaller one is used. `slot` identifies the device in this process, for caching: each
  // API has one slot per device that it numbers.
  int index_of_device(int slot, const char* device_key, uint64_t physical);
  int cached_device_index(int slot) const {
    return device_indices_[slot].load(std::memory_order_acquire);
  }
  void forget_device_index(int slot) {
    device_indices_[slot].store(kUnknownDevice, std::memory_order_release);
  }
  static constexpr int kSlotsOfVendor = 128;
  static constexpr int kNvidiaSlots = 0, kAmdSlots = kSlotsOfVendor, kRmSlots = 2 * kSlotsOfVendor;
  static constexpr int kUnknownDevice = -3;

  // The device index of CUDA's only device in this process, kNotCapped if CUDA has several, or
  // kUnknownDevice while it is not determined. Any thread may read and write it.
  std::atomic<int> only_cuda_device{kUnknownDevice};

  // Joins the tenant's ledger, once. False with fault() set if that is not possible; false without
  // a fault while no descriptor is free.
  bool join();

  // Usable once join() has returned true. All tables have their own locks.
  Ledger ledger;
  const bool keeps_call_sites =
      logs(Level::info);  // read by every allocation, so close to `ledger`
  LiveMap allocations;
  PoolTable pools;
  PoolBlocks pool_blocks;
  StreamTable streams;
  GraphTable graphs;
  PhysicalTable physical;
  Imports imports;
  OpenExports open_exports;
  ExportTable exports;
  ContextTable contexts;
  LibraryTable libraries;
  CodeSizes code_sizes;
  DriverBuffers driver_buffers;
  DriverBuffers rm_memory;    // the same for NVIDIA's driver, and what calls requested
  DriverBuffers rm_devices;   // device objects that NVIDIA's other libraries made, without memory
  DriverBuffers gem_buffers;  // of AMD's graphics drivers
  ModuleTable modules;        // used with `cold_paths` held
  GuessedCharges guessed_charges;                 // the same
  HashTable<DeferredExport, 8> deferred_exports;  // the same
  // By the device index and the runtime's pool.
  LazyArray<std::array<BlockCache, BlockCache::kPools>, layout::kMaxDevices> blocks;
  LingeringChunks lingering;
  Configuration configuration;                        // written by the constructor alone
  LazyArray<Overhead, layout::kMaxDevices> overhead;  // by the device index
  // By CUDA's ordinal: how often the program has retained the primary context. Used with
  // `lifetimes` held.
  uint32_t primary_retains[kSlotsOfVendor] = {};
  // Counters that any thread changes, without a lock.
  std::atomic<uint32_t> managed_count{0};    // live allocations of managed memory that HIP made
  std::atomic<uint32_t> small_arrays{0};     // live ones, which share chunks
  std::atomic<uint32_t> in_flight{0};        // InFlightScopes that live
  std::atomic<uint64_t> in_flight_ended{0};  // those that have ended
  // A recording has begun late, and the earlier use of pools is not recorded yet.
  std::atomic<bool> pool_use_unrecorded{false};
  // Whether a pool grows by what an allocation needs beyond the rest of its last chunk: not known,
  // observed, or observed not to, which is final.
  enum class PoolGrowth { unknown, extends, apart };
  std::atomic<PoolGrowth> pool_growth{PoolGrowth::unknown};
  // CUDA's allocations below 2 MiB pass this gate. One that uses a hole in a chunk closes it
  // meanwhile.
  Gate small_allocations;
  std::atomic<bool> holes_are_unforeseen{false};  // this driver places them by another rule
  // Locks, outermost first: a thread takes none while it holds a later one.
  SleepLock lifetimes;  // held while a hook makes or ends a primary context of CUDA's, or starts or
                        // ends HSA's runtime, so that their handles stay the same
  SleepLock limits;     // held while a hook changes one of the driver's limits
  SleepLock cold_paths;    // held while overhead is measured and charged, by OverheadLock alone
  SpinLock counting;       // held by `publish_allocation_count` alone
  RateLimit refusal_rate;  // of all lines about refusals
  CallSites call_sites;    // filled only if `keeps_call_sites`
  Recorder recorder;       // has locks of its own

  // Bytes that the whole tenant holds on a device. Reaps dead processes first, at most every
  // kReapInterval_ms, since looking for them costs system calls.
  uint64_t tenant_held(int device_index) {
    const uint64_t held = ledger.has_one_slot() ? ledger.held_in_first_slot(device_index)
                                                : held_beside_others(device_index);
    return held * layout::kUnit;
  }

  // For a process that exits: ends its membership of the tenant.
  [[gnu::cold]] static void leave();

  bool has_joined() const { return joined_.load(std::memory_order_acquire) > 0; }

  // Begins to record if a recorder has asked for it. For slow paths. The caller must then report
  // the levels of pools and their earlier use, which only their driver knows.
  void look_for_recorder() {
    if (ledger.recording() != recording_.load(std::memory_order_relaxed)) [[unlikely]]
      start_late_recording();
  }

  // What a tool may see of a device; see Observation. False if the device is not capped.
  bool view(const char* device_key, uint64_t physical, TenantView& view);

 private:
  explicit Process(const char* fault);  // null: only the configuration's faults count
  [[gnu::cold]] static Process* make_self();
  // A stand-in that refuses everything, for when no Process can be made.
  [[gnu::cold]] static Process* make_refusing(const char* why);
  int register_device(const char* device_key, uint64_t physical);
  uint64_t held_beside_others(int device_index);
  void fail(const Message& why);
  // The same, except that a lack of descriptors is no fault: returns false then.
  bool fail_for_good(const Message& why);
  [[gnu::cold]] void start_late_recording();
  void record_device(int device_index);
  void refuse_device(const char* device_key);

  FirstFault fault_;
  FirstFault device_fault_;
  std::atomic<int> joined_{0};  // 0 not yet, 1 yes, -1 failed
  std::atomic<bool> lacked_descriptor_{false};
  SleepLock joining_;
  SleepLock registering_;
  // Used with registering_ held.
  bool told_unknown_selector_ = false;
  // Whether the device has its `blocks` and `overhead`. Any thread may read it.
  std::atomic<bool> is_registered_[layout::kMaxDevices] = {};
  std::atomic<int> device_indices_[3 * kSlotsOfVendor];
  std::atomic<uint64_t> next_reap_ms_{0};
  std::atomic<uint64_t> recording_{0};  // the last one requested; see Ledger::recording
};

}  // namespace fracgpu
