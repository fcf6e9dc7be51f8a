// Blocks of device memory that a runtime carves small allocations out of and keeps for a while when
// they are empty (AMD's ROCr does).
//
// An empty block that is kept is still device memory, so it stays charged. The next small
// allocation that needs a block uses it without taking more. How many the runtime keeps follows
// from how many are in use, by the rule of ROCr's fragment allocator (public source): after a block
// has become empty, empty ones are returned while there is more than one and they are more than
// twice those in use. With several threads the runtime may see their calls in another order. The
// count here is then never less than what it has. Where the runtime's requests to its kernel driver
// are seen (`got`, `returned`), they correct the count as soon as no allocation is under way. If a
// release of ROCr has another rule and they are not seen, the driver-reported usage does. It does
// not show what has gone, so it corrects nothing that the requests show to be there.
//
// Under a full cap a small allocation may still fit into a hole of a block in use. The runtime
// knows its holes, and is asked for one while it may not take a new block. The allocation is then
// in a charged block, but only while no other allocation of the pool is under way. So an allocation
// that needs a hole makes the others wait (`enter_alone`).
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
  // Each of a runtime's pools on one device carves its own blocks.
  static constexpr int kPools = 8;
  static constexpr uint64_t kBlockUnits = (2u << 20) / layout::kUnit;

  // A small allocation under way.
  struct Ticket {
    bool from_empty = false;  // an empty, already charged block is set aside for it
    uint64_t settled = 0;     // number of set-aside blocks used or returned before
  };

  // A small allocation begins. From now on a block counts as in use for it, since the runtime may
  // take one. `whole`: it fills a block, for which the runtime takes a new one.
  Ticket begin(bool whole) {
    for (;;) {
      if (Ticket ticket; try_begin(whole, ticket)) return ticket;
      const Locked<SleepLock> until_alone_is_done(alone_);
    }
  }

  // The allocation was not made.
  void cancel(const Ticket& begun) {
    Locked<SpinLock> lock(lock_);
    --under_way_;
    end(begun, begun.from_empty);
  }

  // The last call for a small allocation that was made.
  void placed() {
    Locked<SpinLock> lock(lock_);
    --under_way_;
  }

  // For an allocation that has begun, has no empty block set aside, and for which the cap has no
  // room: until `leave_alone`, no other one begins and none is under way. Waits for those under
  // way, which may wait a second for the memory of dead processes. False if that takes too long.
  [[gnu::cold]] bool enter_alone(Ticket& begun) {
    count_waiting(1);  // other allocations that want to be alone need not wait for it
    alone_.lock();
    set_alone(true);
    for (int waited_ms = 0; waited_ms < kMostAlone_ms && !is_alone(); ++waited_ms) sleep_ms(1);
    const bool entered = is_alone();
    count_waiting(-1);
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

  // An allocation in a hole is the first known suballocation of its block, so the block became
  // empty meanwhile. False if no block is counted as empty yet, so that nothing is charged for it.
  [[gnu::cold]] bool take_empty() {
    Locked<SpinLock> lock(lock_);
    if (empty_ == 0) return false;
    ++changes_;
    --empty_;
    return true;
  }

  // The allocation is a block's first known suballocation, charged by the empty block set aside for
  // it.
  void filled() {
    Locked<SpinLock> lock(lock_);
    --unsettled_;
  }

  // The allocation is not the first known suballocation of a block. True if the block that is
  // charged for it counts as empty from now on. The block that was set aside for it is still empty.
  // A block that was set aside for another allocation meanwhile may be empty, too: the runtime may
  // have made a block for this allocation and put the other suballocation into it. That one was
  // then recorded first, and the block got its charge. Nothing shows whether this happened; one
  // block too many does no harm.
  bool shared(const Ticket& begun) {
    Locked<SpinLock> lock(lock_);
    const bool is_empty = begun.from_empty || set_aside_ != begun.settled;
    end(begun, is_empty);
    return is_empty;
  }

  // A block in use is gone, or will go when it becomes empty. `apart`: it was set apart.
  void discarded(bool apart) {
    Locked<SpinLock> lock(lock_);
    uint32_t& blocks = apart ? apart_ : in_use_;
    if (blocks > 0) --blocks;
    has_discarded_ = true;
  }

  // The runtime makes no more suballocations from a block in use, because other processes may have
  // it.
  void set_apart() {
    Locked<SpinLock> lock(lock_);
    if (in_use_ > 0) --in_use_;
    ++apart_;
  }
  // The last suballocation of such a block is gone; returns how many blocks the runtime released.
  // ROCr 6.4.3 never releases one that had several suballocations when it was set apart. While the
  // requests to the kernel driver show this, it stays charged.
  uint32_t emptied_apart() {
    Locked<SpinLock> lock(lock_);
    ++changes_;
    if (apart_ > 0) --apart_;
    if (seen_ != Seen::all) return 1;
    ++lost_;
    return 0;
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

  // The kernel driver gave the runtime a block, for a small allocation that is under way.
  // `is_known`: `returned` will be called for it.
  void got(bool is_known = true) {
    Locked<SpinLock> lock(lock_);
    if (!is_known) {
      seen_ = Seen::some;
      return;
    }
    if (seen_ == Seen::none) seen_ = Seen::all;
    ++held_;
  }
  // The kernel driver got back a block that `got` has counted.
  void returned() {
    Locked<SpinLock> lock(lock_);
    if (held_ > 0) --held_;
  }

  // The number of empty blocks that the runtime has returned unforeseen, and that count as gone
  // from now on. Each allocation under way may still need one.
  uint32_t take_returned() {
    Locked<SpinLock> lock(lock_);
    const uint32_t needed = held_ + under_way_;
    if (seen_ != Seen::all || counted() <= needed) return 0;
    const uint32_t gone = std::min(counted() - needed, lost_ + empty_);
    const uint32_t of_lost = std::min(gone, lost_);
    if (gone > 0) ++changes_;
    lost_ -= of_lost;
    empty_ -= gone - of_lost;
    return gone;
  }

  // The number of empty blocks; `changes` differs from an earlier value if any was used since.
  struct EmptyBlocks {
    uint32_t blocks = 0;
    uint32_t may_be_gone = 0;  // of them; the runtime still has the others
    uint64_t changes = 0;
  };
  EmptyBlocks empty_blocks() {
    Locked<SpinLock> lock(lock_);
    // The runtime may still have a discarded block, which only `held_` counts.
    const bool is_known = seen_ == Seen::all && !has_discarded_;
    const uint32_t unseen = is_known ? counted() - std::min(counted(), held_) : counted();
    return {empty_, std::min(empty_, unseen), changes_};
  }

  // The driver-reported usage shows that so many of the empty blocks `seen` are gone. False, with
  // nothing forgotten, if the cache has changed since then.
  bool forget(const EmptyBlocks& seen, uint32_t blocks) {
    Locked<SpinLock> lock(lock_);
    if (changes_ != seen.changes) return false;
    empty_ -= std::min(blocks, empty_);
    return true;
  }

 private:
  // Longer than a reservation waits for memory of dead processes.
  static constexpr int kMostAlone_ms = 1500;

  uint32_t counted() const { return in_use_ + empty_ + apart_ + lost_; }

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
  void count_waiting(int change) {
    Locked<SpinLock> lock(lock_);
    waiting_ += static_cast<uint32_t>(change);
  }
  void set_alone(bool alone) {
    Locked<SpinLock> lock(lock_);
    is_one_alone_ = alone;
  }
  bool is_alone() {
    Locked<SpinLock> lock(lock_);
    return under_way_ == waiting_;
  }
  void end(const Ticket& begun, bool is_empty) {
    ++changes_;
    if (begun.from_empty) --unsettled_;
    if (in_use_ > 0) --in_use_;
    if (is_empty) ++empty_;
  }

  SpinLock lock_;
  bool is_one_alone_ = false;  // no other allocation may begin
  uint32_t in_use_ = 0;
  uint32_t empty_ = 0;
  uint32_t apart_ = 0;  // in use, and set apart
  uint32_t lost_ = 0;   // of those that were set apart: empty, and still the runtime's
  enum class Seen { none, some, all };  // of the blocks that the runtime has of the kernel driver
  Seen seen_ = Seen::none;
  uint32_t held_ = 0;  // number of those that were seen
  bool has_discarded_ = false;
  uint64_t changes_ = 0;
  uint64_t set_aside_ = 0;  // how many times an empty block was set aside
  uint64_t unsettled_ = 0;  // number of those allocations that are under way
  uint32_t under_way_ = 0;  // small allocations that have begun
  uint32_t waiting_ = 0;    // number of those that wait to be alone
  SleepLock alone_;         // held by the allocation that wants a hole; taken before `lock_`
};

}  // namespace fracgpu
