// Blocks of device memory that a runtime carves small allocations out of and keeps for a while when
// they are empty (AMD's ROCr does).
//
// An empty block that is kept is still device memory, so it stays charged, and the next small
// allocation that needs a block takes it without taking more. How many the runtime keeps follows
// from how many are in use, by the rule of ROCr's fragment allocator (public source): after a block
// has become empty, empty ones are returned while there is more than one and they are more than
// twice those in use. With several threads the runtime may see their calls in another order: what
// is counted here is then never less than what it has. Should a release of ROCr have another rule,
// the truth corrects the count.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fracgpu/ledger_layout.h"
#include "shim/spin_lock.h"

namespace fracgpu {

class BlockCache {
 public:
  // A runtime's pools on one device each carve blocks of their own.
  static constexpr int kPools = 8;
  static constexpr uint64_t kBlockUnits = (2u << 20) / layout::kUnit;

  // A small allocation begins: true when an empty block, which is charged already, is set aside for
  // it. From now on a block counts as in use for it, since the runtime may take one. `whole`: it
  // fills a block, and the runtime takes a new one for such.
  bool begin(bool whole) {
    Locked<SpinLock> lock(lock_);
    ++changes_;
    ++in_use_;
    if (whole || empty_ == 0) return false;
    --empty_;
    return true;
  }

  // It is not the first part of a block; `from_empty`: the one set aside is empty still.
  void end(bool from_empty) {
    Locked<SpinLock> lock(lock_);
    ++changes_;
    if (in_use_ > 0) --in_use_;
    if (from_empty) ++empty_;
  }

  // A block in use is gone, or will go when it becomes empty because other processes have it.
  void discarded() {
    Locked<SpinLock> lock(lock_);
    if (in_use_ > 0) --in_use_;
  }

  // The last part of a block in use is gone; returns how many blocks the runtime has let go of.
  uint32_t left() {
    Locked<SpinLock> lock(lock_);
    ++changes_;
    if (in_use_ > 0) --in_use_;
    ++empty_;
    const uint32_t before = empty_;
    empty_ = std::min(empty_, std::max(1u, 2 * in_use_));
    return before - empty_;
  }

  // How many empty blocks are kept; `changes` differs from an earlier value if any was used since.
  struct Kept {
    uint32_t blocks = 0;
    uint64_t changes = 0;
  };
  Kept kept() {
    Locked<SpinLock> lock(lock_);
    return {empty_, changes_};
  }

  // The truth says that so many of the empty blocks that were `seen` are gone. False, and nothing
  // is forgotten, when the cache has changed since then.
  bool forget(const Kept& seen, uint32_t blocks) {
    Locked<SpinLock> lock(lock_);
    if (changes_ != seen.changes) return false;
    empty_ -= std::min(blocks, empty_);
    return true;
  }

 private:
  SpinLock lock_;
  uint32_t in_use_ = 0;
  uint32_t empty_ = 0;
  uint64_t changes_ = 0;
};

}  // namespace fracgpu
