// Charging: the one way in which a hook takes and gives back device memory.
//
// Reserve, then call the driver, then keep or roll back. A hook knows its vendor's API and this
// header; it knows nothing of shared memory. The amounts are what becomes physical, rounded as
// the driver rounds, so that the ledger and the driver agree.
#pragma once

#include <cstdint>

#include "shim/process.h"

namespace fracgpu {

// Writes into the ledger how many allocations of this process live on the device. Done where the
// fast path is left anyway (a lease has grown, the truth was read, memory was refused) and, so that
// frees show as well, each time that half of the memory is gone.
[[gnu::cold]] void tell_allocations(Process& process, int row);

// Room under the cap, taken before the driver is called.
class Reservation {
 public:
  // Reserves `units` on the device row for the function `api`, of which `charged` are charged
  // already and become part of the reservation. When the cap has no room, says so on stderr
  // (rate-limited) and is false.
  Reservation(Process& process, int row, uint64_t units, const char* api, uint64_t charged = 0)
      : process_(process),
        row_(row),
        units_(units),
        api_(api),
        granted_(units == charged || process.ledger.reserve_within_lease(row, units - charged)) {
    if (!granted_) ask_the_others(charged);
  }

  // What was not kept is given back. If the lease had to grow, tells how many allocations live now.
  ~Reservation() {
    if (granted_ && units_ > 0) process_.ledger.release(row_, units_);
    if (lease_grew_) tell_allocations(process_, row_);
  }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  explicit operator bool() const { return granted_; }

  // The driver took `units` of the reservation; the rest is given back now.
  void keep(uint64_t units) {
    if (units < units_) process_.ledger.release(row_, units_ - units);
    units_ = 0;
  }

  // Hands all of it over: the caller keeps or gives back what it returns.
  uint64_t take() {
    const uint64_t units = granted_ ? units_ : 0;
    units_ = 0;
    return units;
  }
  int row() const { return row_; }
  bool lease_grew() const { return lease_grew_; }

  // The driver has not the memory: says so, and what was reserved goes back as ever.
  [[gnu::cold]] void refused_by_driver() const;

 private:
  [[gnu::cold]] void ask_the_others(uint64_t charged);

  Process& process_;
  int row_;
  uint64_t units_;
  const char* api_;
  bool granted_;
  bool lease_grew_ = false;
};

// While one lives, its thread may be between the driver's call and what the tables say of it:
// memory that goes with a context, or with its last handle or mapping. The driver counts that no
// longer and the ledger does: a reading of the truth would take the difference from what is
// implicit, and the release would then take it again.
class Disturbance {
 public:
  explicit Disturbance(Process& process) : process_(process) { ++process_.disturbances; }
  ~Disturbance() {
    ++process_.disturbed;  // first, so that who sees none under way sees that there was one
    --process_.disturbances;
  }
  Disturbance(const Disturbance&) = delete;
  Disturbance& operator=(const Disturbance&) = delete;

 private:
  Process& process_;
};

// Gives back what is charged for memory that this process has let go of. What was `exported` may be
// held by others yet, at this process's cost: only the truth can tell.
void give_back(Process& process, int row, uint64_t units, bool exported);

// The same for memory whose last use is gone, with all that was bound to it.
void give_back(Process& process, const PhysicalTable::Freed& freed);

// Physical form of one linear allocation, as NVIDIA's driver makes it.
struct LinearSize {
  uint64_t units;  // to reserve
  bool shares_chunk;
  bool managed = false;  // see Allocation
};

// Pages of the driver: requests of 1 MiB and more get whole ones, smaller ones share a chunk of
// one page. (Public behaviour; cuMemGetInfo moves in these steps.)
inline constexpr uint64_t kPageBytes = 2u << 20;
inline constexpr uint64_t kSmallestWhole = 1u << 20;

// Pools and graph memory grow by chunks of this size, or by what is asked for where that is more.
// (Public behaviour, not documented and not measured.)
inline constexpr uint64_t kPoolChunkBytes = 32u << 20;

constexpr LinearSize linear_size(uint64_t bytes) {
  if (bytes < kSmallestWhole) return {kPageBytes / layout::kUnit, true};
  const uint64_t pages = bytes / kPageBytes + (bytes % kPageBytes != 0);
  return {pages * (kPageBytes / layout::kUnit), false};
}

// Keys of Process::allocations. Addresses are even, so the lowest bit tells chunks apart.
constexpr uint64_t chunk_key(uint64_t address) {
  return (address & ~(kPageBytes - 1)) | 1;
}

// Enters the allocation that `reservation` made room for. False when the host has no memory left
// to remember it; the caller must then undo the driver's call.
bool record_linear(Process& process, Reservation& reservation, const Context& context,
                   uint64_t address, const LinearSize& size);

// Enters `units` of managed memory that are charged already. False when the host has no memory left
// to remember it; they are given back then.
bool enter_managed(Process& process, const Context& context, uint64_t key, uint64_t units);

// The same for a part of a block that the runtime keeps when it is empty (block_cache.h), on the
// first part of which alone something is charged. The caller has begun it there, and `begun` is
// what that said. Where this is false the caller must cancel it.
bool record_part(Process& process, Reservation& reservation, const Context& context, int pool,
                 uint64_t address, const BlockCache::Begun& begun);

// What a free is about to give back. A whole allocation is taken before the driver is called,
// since afterwards the driver may hand the same address to another thread; a part of a chunk is
// counted until the driver is done, since until then the chunk stays.
class Release {
 public:
  // `likely_part`: what is at the address is a part of a chunk rather than a whole allocation.
  Release(Process& process, uint64_t address, bool likely_part = false) : process_(process) {
    found_ = address != 0 && (likely_part ? begin_part(address) || take_whole(address)
                                          : take_whole(address) || begin_part(address));
  }
  // The driver freed it: give back the charge. Without this call the entry is put back.
  void done();
  // The same, where the runtime keeps a block whose last part is gone.
  void done_in_block();
  // The driver will free it when it gets there: the charge stays until the truth is read.
  void left_to_truth();
  bool found() const { return found_; }
  ~Release() {
    if (found_ && !done_) put_back();
  }
  Release(const Release&) = delete;
  Release& operator=(const Release&) = delete;

 private:
  bool take_whole(uint64_t address) { return process_.allocations.take(address, taken_); }
  bool begin_part(uint64_t address) {
    return process_.allocations.begin_drop(chunk_key(address), taken_);
  }
  uint64_t finish(bool lingers);  // units to give back
  [[gnu::cold]] void put_back();
  bool in_chunk() const { return (taken_.key & 1) != 0; }

  Process& process_;
  Allocation taken_;
  bool found_;
  bool done_ = false;
};

// Enters an array that shares a chunk: nothing is charged for it by itself, but while there is one,
// a chunk may outlive the linear memory in it. The caller has counted it in `small_arrays` already.
bool record_small_array(Process& process, const Context& context, uint64_t handle);

// Gives back everything that was allocated in a context that the driver has destroyed.
void release_context(Process& process, const Context& context);

// Pools. After a call that may have changed how much a pool holds, its charge becomes what the
// driver says; `reservation` is what was reserved for its growth, or null. False when it grew by
// more.
bool settle_pool(Process& process, uint64_t key, Reservation* reservation);
void settle_pools(Process& process, int row);

// Makes the device's pools give back what they hold unused. True if they held any.
bool trim_pools(Process& process, int row);

// The pool may be imported by other processes from now on.
void note_exported_pool(Process& process, uint64_t key);

// Reads the truth when much is charged for what exported pools may have let go of.
void settle_left(Process& process, int row);

// The pool is destroyed and cannot be asked any more; `in_use`: parts of it are still allocated.
void charge_destroyed_pool(Process& process, const Pool& pool, bool in_use);

// What is charged already counts as implicit memory from now on: only the truth can tell when it is
// gone, and is asked at the next opportunity. `exported`: others may hold it, and longer than this
// process lives.
[[gnu::cold]] void leave_to_truth(Process& process, int row, uint64_t units, bool exported = false);

// Memory that a call makes the driver take without naming a size: reserved by an estimate, and set
// right from the truth afterwards.
class ImplicitReservation {
 public:
  enum class Kind { given, context, runtime, module };

  // `units`: the most that the call takes.
  ImplicitReservation(Process& process, int row, uint64_t units, const char* api,
                      Kind kind = Kind::given);
  // For a context or a module: by the largest that was seen.
  // `estimate`: units, while none was seen.
  static ImplicitReservation for_context(Process& process, int row, const char* api,
                                         uint64_t estimate);
  static ImplicitReservation for_module(Process& process, int row, const char* api,
                                        uint64_t estimate);
  ~ImplicitReservation();
  ImplicitReservation(const ImplicitReservation&) = delete;
  ImplicitReservation& operator=(const ImplicitReservation&) = delete;

  explicit operator bool() const { return granted_; }

  // The driver has done it. False when what it took does not fit under the cap: the caller must
  // undo it and then call `settle_implicit` or `settle_after_destroy`.
  bool made();

  // As Reservation's.
  void refused_by_driver() const;

 private:
  bool is_context() const { return kind_ == Kind::context || kind_ == Kind::runtime; }

  Process& process_;
  int row_;
  const char* api_;
  Kind kind_;
  uint64_t units_;
  uint64_t used_before_ = UINT64_MAX;  // units of all processes on the device, for contexts
  bool granted_ = false;
};

// Reads the truth again if it is some time since the last reading or that one was not to be
// believed. True when the implicit memory turned out to be less than what was charged.
// `own` units are reserved by the calling thread for a call that it has not made yet.
bool refresh_implicit(Process& process, int row, uint64_t own = 0);

// The driver may have given implicit memory back: reads the truth now. False where that cannot be
// had.
bool settle_implicit(Process& process, int row);

// Lowers the implicit memory by `units`, by the caller's own knowledge.
void give_back_implicit(Process& process, int row, uint64_t units);

// The driver destroyed a context: the same, and by estimate where the truth cannot be had.
void settle_after_destroy(Process& process, int row, uint64_t estimate);

// Records that an allocation was refused, and says why unless too much was said lately.
void say_refusal(Process& process, int row, const char* api, Refusal& refusal);
void say_fault(Process& process, const char* api);

// The same when the driver has not the memory for which `units` are reserved.
void say_driver_refusal(Process& process, int row, const char* api, uint64_t units);

// The same when a runtime refused by itself, by what it was told of the capped device.
void say_own_refusal(Process& process, int row, const char* api);

}  // namespace fracgpu
