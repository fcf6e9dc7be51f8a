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
// Any thread may call any function; each takes the cache's lock.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fracgpu/ledger_layout.h"
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
    Locked<SpinLock> lock(lock_);
    ++changes_;
    ++in_use_;
    if (whole || empty_ == 0) return {.settled = set_aside_ - unsettled_};
    --empty_;
    ++set_aside_;
    ++unsettled_;
    return {.from_empty = true};
  }

  // Nothing came of it.
  void cancel(const Ticket& begun) {
    Locked<SpinLock> lock(lock_);
    end(begun, begun.from_empty);
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
  void end(const Ticket& begun, bool is_empty) {
    ++changes_;
    if (begun.from_empty) --unsettled_;
    if (in_use_ > 0) --in_use_;
    if (is_empty) ++empty_;
  }

  SpinLock lock_;
  uint32_t in_use_ = 0;
  uint32_t empty_ = 0;
  uint64_t changes_ = 0;
  uint64_t set_aside_ = 0;  // how many times an empty block was
  uint64_t unsettled_ = 0;  // how many of those allocations are under way
};

}  // namespace fracgpu
