// Linear allocations: their size on the device, and how they are recorded and released.
#pragma once

#include <cstdint>
#include <optional>

#include "shim/charge/in_flight.h"
#include "shim/charge/reservation.h"

namespace fracgpu {

// Gives back `units` charged for memory that this process has freed.
void give_back(Process& process, int device_index, uint64_t units);

// The same for memory that was exported, with its token in OpenExports. As much as descriptors or
// importers may hold stays charged, which may take `Process::cold_paths`.
void give_back_exported(Process& process, int device_index, uint64_t units, uint64_t token);

// The same for an entry of Process::allocations.
void give_back(Process& process, const Allocation& entry, uint64_t units);

// The same for memory whose last use is gone, with all that was bound to it.
void give_back(Process& process, const PhysicalTable::Freed& freed);

// Gives back memory whose unmapping a busy stream has done by now. True if there was any. It calls
// the driver, so it must not be called inside a call of the driver. Takes `cold_paths`.
[[gnu::cold]] bool finish_waiting_unmaps(Process& process);
inline bool finish_unmaps(Process& process) {
  return process.physical.any_unmaps() && finish_waiting_unmaps(process);
}

// The physical form of one linear allocation, as NVIDIA's driver makes it.
struct LinearSize {
  uint64_t units;  // to reserve
  bool shares_chunk;
  bool managed = false;   // see Allocation
  uint32_t in_chunk = 0;  // units of the chunk
};

// Pages of the driver: requests of 2 MiB and more get whole ones, smaller ones share a chunk of
// one page. (libcuda 535 and 550, by the kernel's count and the addresses.)
inline constexpr uint64_t kPageBytes = 2u << 20;

constexpr LinearSize linear_size(uint64_t bytes) {
  if (bytes < kPageBytes) {
    return {.units = kPageBytes / layout::kUnit,
            .shares_chunk = true,
            .in_chunk = static_cast<uint32_t>(layout::units_for(bytes))};
  }
  const uint64_t pages = bytes / kPageBytes + (bytes % kPageBytes != 0);
  return {pages * (kPageBytes / layout::kUnit), false};
}

// Keys of Process::allocations. Addresses are even, so the lowest bit marks chunks.
constexpr uint64_t chunk_key(uint64_t address) {
  return (address & ~(kPageBytes - 1)) | 1;
}

// The position of an address in its chunk, in units.
constexpr uint32_t unit_in_chunk(uint64_t address) {
  return static_cast<uint32_t>(address % kPageBytes / layout::kUnit);
}

// Records the allocation that `reservation` made room for. False if the host is out of memory; the
// caller must then undo the driver's call.
bool record_linear(Process& process, Reservation& reservation, const Context& context,
                   uint64_t address, const LinearSize& size);

// Around the driver's call that makes a small allocation, and around its record.
class SmallAllocationScope {
 public:
  SmallAllocationScope(Process& process, bool is_small)
      : gate_(is_small ? &process.small_allocations : nullptr) {
    if (gate_ != nullptr) gate_->enter();
  }
  ~SmallAllocationScope() {
    if (gate_ != nullptr) gate_->leave();
  }
  SmallAllocationScope(const SmallAllocationScope&) = delete;
  SmallAllocationScope& operator=(const SmallAllocationScope&) = delete;

 private:
  Gate* const gate_;
};

// A place in a chunk that is already charged, for an allocation for which the cap has no room. The
// scope is true if there is one, or if the driver may look for one. While it exists, no other
// thread then makes a small allocation. Its end takes `Process::cold_paths`, which the caller must
// not hold.
class HoleScope {
 public:
  // Looks for a hole. At a full cap, every small allocation does so. `is_watched`: the driver's
  // requests for chunks are seen and refused, so the driver itself looks.
  HoleScope(Process& process, const Context& context, const LinearSize& size, bool is_watched);
  ~HoleScope() {
    if (is_closed_) end();
  }
  HoleScope(const HoleScope&) = delete;
  HoleScope& operator=(const HoleScope&) = delete;

  explicit operator bool() const { return is_closed_; }

  // Records the allocation that the driver has made, and its size. `given`: units that were charged
  // for a chunk within the call. False if the driver did not use a hole and the new chunk does not
  // fit under the cap, or if the host is out of memory; the caller must then undo the driver's
  // call.
  bool record(uint64_t address, const LinearSize& size, uint64_t given);
  // After `record`: no other allocation has been recorded in the chunk.
  bool is_new_chunk() const { return is_new_chunk_; }

 private:
  void end();
  uint64_t unpin();

  // One chunk may be replaced by another, without a reservation that a reading would notice.
  std::optional<InFlightScope> in_flight_;
  Process& process_;
  const uint32_t wanted_;  // units
  Allocation chunk_;
  // A chunk with a hole. Its charge stays until the scope ends: if its last user is freed
  // meanwhile, the driver takes a new chunk in its place.
  Allocation pinned_;
  Allocation gone_;  // the pinned chunk, if the driver or an importer may have it still
  const bool is_watched_;
  bool is_closed_ = false, is_new_chunk_ = false;
};

// Records `units` of managed memory that are already charged. False if the host is out of memory;
// the units are given back then.
bool enter_managed(Process& process, const Context& context, uint64_t key, uint64_t units);

// The same for a suballocation of a block that the runtime keeps when it is empty (block_cache.h).
// Only a block's first suballocation is charged. The caller has called BlockCache::begin, which
// returned `begun`. If this returns false, the caller cancels `begun`.
bool record_suballocation(Process& process, Reservation& reservation, const Context& context,
                          int pool, uint64_t address, const BlockCache::Ticket& begun);

// The same for a suballocation without a reservation, after BlockCache::enter_alone: the runtime
// had no new block for it. Also false if the block turns out not to be charged.
[[gnu::cold]] bool record_in_hole(Process& process, const Context& context, int pool,
                                  uint64_t address, const BlockCache::Ticket& begun);

// The charge that a free is about to give back. A whole allocation is taken from the map before the
// driver is called, since the driver may then hand the same address to another thread. A
// suballocation is counted until the driver is done, since the chunk stays until then.
class Release {
 public:
  // `likely_suballocation`: the address is likely in a chunk rather than that of a whole
  // allocation.
  Release(Process& process, uint64_t address, bool likely_suballocation = false)
      : process_(process), address_(address) {
    found_ = address != 0 &&
             (likely_suballocation
                  ? begin_suballocation(address) || take_whole(address)
                  : process_.allocations.take_or_begin_drop(address, chunk_key(address), taken_));
  }
  // The driver has freed it: gives back the charge. Without this call the entry is put back.
  void done();
  // The same if the runtime keeps a block whose last suballocation is gone.
  void done_in_block();
  // The driver will free it later: the charge stays until the driver-reported usage is read.
  void defer();
  bool found() const { return found_; }
  ~Release() {
    if (found_ && !done_) put_back();
  }
  Release(const Release&) = delete;
  Release& operator=(const Release&) = delete;

 private:
  bool take_whole(uint64_t address) { return process_.allocations.take(address, taken_); }
  bool begin_suballocation(uint64_t address) {
    return process_.allocations.begin_drop(chunk_key(address), taken_);
  }
  uint64_t finish(bool lingers);  // units to give back
  [[gnu::cold]] void put_back();
  bool in_chunk() const { return (taken_.key & 1) != 0; }

  Process& process_;
  const uint64_t address_;
  Allocation taken_;
  bool found_;
  bool done_ = false;
};

// Records an array that shares a chunk with other arrays: nothing is charged for it by itself. The
// caller has already counted it in `small_arrays`. `unread_since`: from its reservation.
bool record_small_array(Process& process, const Context& context, uint64_t handle,
                        uint32_t unread_since);

// Gives back everything that was allocated in a context that the driver has destroyed.
void release_context(Process& process, const Context& context);

}  // namespace fracgpu
