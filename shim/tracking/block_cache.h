// Blocks of device memory that a runtime carves small allocations out of and keeps for a while when
// they are empty (AMD's ROCr does).
//
// An empty block that is kept is still device memory, so it stays charged, and the next small
// allocation that needs a block takes it without taking more. How many the runtime keeps follows
// from how many are in use, by the rule of ROCr's fragment allocator (public source): after a block
// has become empty, empty ones are returned while there is more than one and they are more than
// twice those in use. With several threads the runtime may see their calls in another order: what
// is counted here is then never less than what it has. Should a release of ROCr have another rule,
// the driver-reported usage corrects the count.
//
// Under a full cap a small allocation may still fit into a hole of a block in use. The runtime
// knows its holes, and is asked without being let have a new block. What it then takes is in a
// block that is charged only while no other allocation of the pool is under way, so whoever asks
// makes the others wait (`enter_alone`).
//
// Any thread may call any function; each takes the cache's lock.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fracgpu/ledger_layout.h"
#include "shim/base/clock.h"
#include "shim/base/sleep_lock.h"
#include "shim/base/spin_lock.h"

namespace fracgpu {

class alignas(64) BlockCache {
 public:
  // A runtime's pools on one device each carve blocks of their own.
  static constexpr int kPools = 8;
  static constexpr uint64_t kBlockUnits = (2u << 20) / layout::kUnit;

  // A small allocation that is under way.
  struct Ticket {
    bool from_empty = false;  // an empty block, which is charged already, is set aside for it
    uint64_t settled = 0;  // how many of those that were set aside had been used or returned before
  };

  // A small allocation begins. From now on a block counts as in use for it, since the runtime may
  // take one. `whole`: it fills a block, and the runtime takes a new one for such.
  Ticket begin(bool whole) {
    for (;;) {
      if (Ticket ticket; try_begin(whole, ticket)) return ticket;
      const Locked<SleepLock> until_alone_is_done(alone_);
    }
  }

  // Nothing came of it.
  void cancel(const Ticket& begun) {
    Locked<SpinLock> lock(lock_);
    --under_way_;
    end(begun, begun.from_empty);
  }

  // The last call for a small allocation that came to be.
  void placed() {
    Locked<SpinLock> lock(lock_);
    --under_way_;
  }

  // For an allocation that has begun, has no empty block set aside, and for which there is no room:
  // until `leave_alone`, no other one begins and none is under way. Waits for those that are, which
  // may wait a second for the memory of the dead; false if that takes too long.
  [[gnu::cold]] bool enter_alone(Ticket& begun) {
    count_under_way(-1);  // others who want the same wait for it too
    alone_.lock();
    set_alone(true);
    for (int waited_ms = 0; waited_ms < kMostAlone_ms && !is_alone(); ++waited_ms) sleep_ms(1);
    const bool entered = is_alone();
    count_under_way(1);
    if (entered) {
      Locked<SpinLock> lock(lock_);
      begun.settled = set_aside_;
    } else {
      leave_alone();
    }
    return entered;
  }
  [[gnu::cold]] void leave_alone() {
    set_alone(false);
    alone_.unlock();
  }

  // An allocation in a hole is the first known suballocation of its block: that one became empty
  // meanwhile. False when none is counted as such yet, so that nothing is charged for it.
  [[gnu::cold]] bool take_empty() {
    Locked<SpinLock> lock(lock_);
    if (empty_ == 0) return false;
    ++changes_;
    --empty_;
    return true;
  }

  // It is the first known suballocation of a block, charged by the empty one set aside for it.
  void filled() {
    Locked<SpinLock> lock(lock_);
    --unsettled_;
  }

  // It is not the first known suballocation of a block. True when the block that is charged for it
  // counts as an empty one from now on: the one set aside is empty still. So may another one be
  // that was set aside while this allocation was under way: the runtime may have made a block for
  // this one and put the other suballocation into it, which then was the first to be known, and the
  // block got the other one's charge. Nothing shows whether it was so; one too many does no harm.
  bool shared(const Ticket& begun) {
    Locked<SpinLock> lock(lock_);
    const bool is_empty = begun.from_empty || set_aside_ != begun.settled;
    end(begun, is_empty);
    return is_empty;
  }

  // A block in use is gone, or will go when it becomes empty because other processes have it.
  void discarded() {
    Locked<SpinLock> lock(lock_);
    if (in_use_ > 0) --in_use_;
  }

  // The last suballocation of a block in use is gone; returns how many blocks the runtime released.
  uint32_t emptied() {
    Locked<SpinLock> lock(lock_);
    ++changes_;
    if (in_use_ > 0) --in_use_;
    ++empty_;
    const uint32_t before = empty_;
    empty_ = std::min(empty_, std::max(1u, 2 * in_use_));
    return before - empty_;
  }

  // How many empty blocks are kept; `changes` differs from an earlier value if any was used since.
  struct EmptyBlocks {
    uint32_t blocks = 0;
    uint64_t changes = 0;
  };
  EmptyBlocks empty_blocks() {
    Locked<SpinLock> lock(lock_);
    return {empty_, changes_};
  }

  // By the driver-reported usage so many of the empty blocks `seen` are gone. False, and nothing
  // is forgotten, when the cache has changed since then.
  bool forget(const EmptyBlocks& seen, uint32_t blocks) {
    Locked<SpinLock> lock(lock_);
    if (changes_ != seen.changes) return false;
    empty_ -= std::min(blocks, empty_);
    return true;
  }

 private:
  // Longer than a refusal waits for the dead.
  static constexpr int kMostAlone_ms = 1500;

  bool try_begin(bool whole, Ticket& ticket) {
    Locked<SpinLock> lock(lock_);
    if (is_one_alone_) return false;
    ++under_way_;
    ++changes_;
    ++in_use_;
    if (whole || empty_ == 0) {
      ticket.settled = set_aside_ - unsettled_;
      return true;
    }
    --empty_;
    ++set_aside_;
    ++unsettled_;
    ticket.from_empty = true;
    return true;
  }
  void count_under_way(int change) {
    Locked<SpinLock> lock(lock_);
    under_way_ += static_cast<uint32_t>(change);
  }
  void set_alone(bool alone) {
    Locked<SpinLock> lock(lock_);
    is_one_alone_ = alone;
  }
  bool is_alone() {
    Locked<SpinLock> lock(lock_);
    return under_way_ == 0;
  }
  void end(const Ticket& begun, bool is_empty) {
    ++changes_;
    if (begun.from_empty) --unsettled_;
    if (in_use_ > 0) --in_use_;
    if (is_empty) ++empty_;
  }

  SpinLock lock_;
  bool is_one_alone_ = false;  // nobody else may begin
  uint32_t in_use_ = 0;
  uint32_t empty_ = 0;
  uint64_t changes_ = 0;
  uint64_t set_aside_ = 0;  // how many times an empty block was
  uint64_t unsettled_ = 0;  // how many of those allocations are under way
  uint32_t under_way_ = 0;  // small allocations that have begun
  SleepLock alone_;         // held by who wants a hole; taken before `lock_`
};

}  // namespace fracgpu
