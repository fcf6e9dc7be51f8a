// Blocks by their addresses, and lists of holes by pool and size; see pool_blocks.h.
#include "shim/tracking/pool_blocks.h"

#include <algorithm>

namespace fracgpu {
namespace {

// Blocks of a pool are at multiples of this (public behaviour: so are all pointers that it
// returns).
constexpr uint64_t kAlignment = 512;
constexpr uint64_t aligned(uint64_t bytes) {
  return (bytes + kAlignment - 1) & ~(kAlignment - 1);
}

}  // namespace

void PoolBlocks::link(Block& block) {
  Holes* const holes = holes_.insert(block.pool);
  if (holes == nullptr) {
    block.state = State::used;  // never promised, and erased when it is handed out next
    return;
  }
  uint64_t& newest = holes->newest[class_of(block.bytes)];
  block.newer = 0;
  block.older = newest;
  if (Block* const next = newest != 0 ? blocks_.find(newest) : nullptr) next->newer = block.key;
  newest = block.key;
}

void PoolBlocks::unlink(const Block& block) {
  if (Holes* const holes = holes_.find(block.pool)) unlink(block, *holes);
}

void PoolBlocks::unlink(const Block& block, Holes& holes) {
  if (Block* const newer = block.newer != 0 ? blocks_.find(block.newer) : nullptr) {
    newer->older = block.older;
  } else {
    holes.newest[class_of(block.bytes)] = block.older;
  }
  if (Block* const older = block.older != 0 ? blocks_.find(block.older) : nullptr)
    older->newer = block.newer;
}

// If a block is already known at the address, the state of the two is not what it seemed: that
// block stays.
void PoolBlocks::enter_free(const Block& block) {
  if (blocks_.find(block.key) != nullptr) return;
  Block* const entered = blocks_.insert(block.key);
  if (entered == nullptr) return;
  *entered = block;
  link(*entered);
}

void PoolBlocks::erase(uint64_t address) {
  Block* const block = blocks_.find(address);
  if (block == nullptr) return;
  if (block->is_free()) unlink(*block);
  blocks_.erase(block);
}

void PoolBlocks::forget_holes_of(uint64_t pool) {
  Holes* const holes = holes_.find(pool);
  if (holes == nullptr) return;
  holes->end = 0;
  for (uint64_t& newest : holes->newest) {
    while (newest != 0) {
      Block* const block = blocks_.find(newest);
      newest = block->older;
      blocks_.erase(block);
    }
  }
}

// With the lock held.
const PoolBlocks::Block* PoolBlocks::find_last_tail(uint64_t pool) {
  const Holes* const holes = holes_.find(pool);
  if (holes == nullptr || holes->end == 0 || holes->end != holes->top) return nullptr;
  for (const uint64_t newest : holes->newest) {
    for (uint64_t address = newest; address != 0;) {
      const Block* const block = blocks_.find(address);
      if (block->state == State::tail && block->key + block->bytes == holes->end) return block;
      address = block->older;
    }
  }
  return nullptr;
}

// With the lock held: the pool grew for the block, up to `end`, or did not.
void PoolBlocks::note_range(const Block& block, uint64_t end, uint64_t grown, uint64_t reserved) {
  Holes* const holes = holes_.insert(block.pool);
  if (holes == nullptr) return;
  if (grown > 0) {
    holes->end = end;
    holes->top = std::max(holes->top, end);
  }
  if (holes->base == 0 || holes->base > block.key) holes->base = block.key;
  // The pool has only the chunks of this block: it was empty, whether or not that was observed.
  const bool is_only = reserved != 0 && reserved - block.bytes < kPoolChunkBytes;
  if (is_only && (grown == reserved || holes->base == block.key)) {
    holes->base = block.key;
    holes->top = block.key + reserved;
  }
}

bool PoolBlocks::is_whole(uint64_t pool, uint64_t reserved) {
  Locked<SpinLock> lock(lock_);
  const Holes* const holes = holes_.find(pool);
  return holes != nullptr && holes->top - holes->base <= reserved;
}

bool PoolBlocks::take_hole(uint64_t pool, uint64_t address, uint64_t bytes, uint64_t reserved) {
  Locked<SpinLock> lock(lock_);
  Block* const block = blocks_.find(address);
  if (block == nullptr || block->state != State::hole || block->pool != pool ||
      aligned(block->bytes) != aligned(bytes)) {
    return false;
  }
  Holes* const holes = holes_.find(pool);
  if (holes == nullptr || holes->top - holes->base > reserved) return false;
  unlink(*block, *holes);
  block->bytes = bytes;
  block->state = State::used;
  return true;
}

PoolBlocks::Growth PoolBlocks::allocated(uint64_t pool, uint64_t address, uint64_t bytes,
                                         uint64_t grown, uint64_t reserved) {
  const uint64_t taken = aligned(bytes);
  Locked<SpinLock> lock(lock_);
  Block* block = blocks_.find(address);
  const Block* const last = grown > 0 ? find_last_tail(pool) : nullptr;
  const Block taking = {.key = address, .bytes = bytes, .pool = pool};
  Block rest;
  Growth growth = Growth::none;
  if (last != nullptr) growth = last == block ? Growth::extended : Growth::apart;
  const bool lands = block != nullptr && block->is_free() && block->pool == pool;
  const uint64_t room = lands ? block->bytes + (growth == Growth::extended ? grown : 0) : 0;
  if (room >= bytes) {
    unlink(*block);
    rest = *block;
    rest.bytes = room - (room < taken ? room : taken);
  } else {
    erase(address);
    if (grown < bytes) forget_holes_of(pool);
    block = blocks_.insert(address);
    if (block == nullptr) {
      forget_holes_of(pool);
      note_range(taking, address + std::max(taken, grown), grown, reserved);
      count();
      return Growth::none;
    }
    rest = {.bytes = grown > taken ? grown - taken : 0, .pool = pool, .state = State::tail};
  }
  *block = taking;
  if (rest.bytes > 0) {
    rest.key = address + taken;
    enter_free(rest);
  }
  // A known hole is within the range.
  const bool is_within = room >= bytes && grown == 0;
  if (!is_within) note_range(taking, address + taken + rest.bytes, grown, reserved);
  count();
  return growth;
}

uint64_t PoolBlocks::begin_free(uint64_t address) {
  if (empty()) return 0;
  Locked<SpinLock> lock(lock_);
  Block* const block = blocks_.find(address);
  if (block == nullptr || block->state != State::used) return 0;
  block->state = State::leaving;
  block->number = ++last_free_;
  return block->number;
}

void PoolBlocks::end_free(uint64_t address, uint64_t number, uint64_t stream, uint64_t epoch) {
  Locked<SpinLock> lock(lock_);
  Block* const block = blocks_.find(address);
  // Another caller may have got it meanwhile.
  if (block == nullptr || block->state != State::leaving || block->number != number) return;
  block->state = State::hole;
  block->stream = stream;
  block->number = ++last_free_;  // the driver knows of it only now
  block->epoch = static_cast<uint32_t>(epoch);
  link(*block);
}

void PoolBlocks::cancel_free(uint64_t address, uint64_t number) {
  Locked<SpinLock> lock(lock_);
  Block* const block = blocks_.find(address);
  if (block != nullptr && block->state == State::leaving && block->number == number)
    block->state = State::used;
}

void PoolBlocks::forget(uint64_t address) {
  if (empty()) return;
  Locked<SpinLock> lock(lock_);
  if (const Block* const block = blocks_.find(address);
      block != nullptr && block->state == State::used) {
    erase(address);
    count();
  }
}

template <typename Condition>
bool PoolBlocks::any_hole(uint64_t pool, uint64_t bytes, Condition condition) {
  // Checks only so many of the newest: 3 ns each, and 0.2 us with the lock held if none fits. If a
  // hole is missed, the allocation only asks for room.
  constexpr int kMostOfClass = 64;
  Locked<SpinLock> lock(lock_);
  const Holes* const holes = holes_.find(pool);
  for (int size = class_of(bytes); holes != nullptr && size < kClasses; ++size) {
    uint64_t address = holes->newest[size];
    for (int looked_at = 0; address != 0 && looked_at < kMostOfClass; ++looked_at) {
      const Block* const block = blocks_.find(address);
      if (block->bytes >= bytes && condition(*block)) return true;
      address = block->older;
    }
  }
  return false;
}

bool PoolBlocks::fits(uint64_t pool, uint64_t stream, uint64_t bytes) {
  return last_tail(pool) >= bytes || any_hole(pool, bytes, [&](const Block& hole) {
           return hole.state == State::hole && hole.stream == stream;
         });
}

bool PoolBlocks::fits_after_event(uint64_t pool, uint64_t stream, uint64_t bytes, uint64_t epoch) {
  return any_hole(pool, bytes, [&](const Block& hole) {
    return hole.state == State::hole && hole.epoch == static_cast<uint32_t>(epoch) &&
           order_.comes_after(stream, hole.stream, hole.number, epoch);
  });
}

uint64_t PoolBlocks::last_tail(uint64_t pool) {
  Locked<SpinLock> lock(lock_);
  const Block* const tail = find_last_tail(pool);
  return tail != nullptr ? tail->bytes : 0;
}

void PoolBlocks::record(uint64_t event, uint64_t stream, uint64_t moment, uint64_t epoch) {
  Locked<SpinLock> lock(lock_);
  order_.record(event, stream, moment, epoch);
}

void PoolBlocks::wait(uint64_t stream, uint64_t event, uint64_t epoch) {
  Locked<SpinLock> lock(lock_);
  order_.wait(stream, event, epoch);
  if (order_.pairs() > most_pairs_) forget_pairs(epoch);
}

// Streams come and go with threads, without a call that shows it. That a stream comes after another
// one matters only for holes that the other one has already made: what it frees later comes later.
void PoolBlocks::forget_pairs(uint64_t epoch) {
  struct Stream {
    uint64_t key = 0;
  };
  HashTable<Stream, 16> with_holes;
  bool complete = true;
  blocks_.for_each([&](const Block& block) {
    if (block.state == State::hole && with_holes.insert(block.stream) == nullptr) complete = false;
  });
  order_.forget_pairs(
      epoch, [&](uint64_t stream) { return !complete || with_holes.find(stream) != nullptr; });
  with_holes.clear();
  most_pairs_ = std::max(kFewPairs, 2 * order_.pairs());
}

bool PoolBlocks::has_hole(uint64_t stream) {
  Locked<SpinLock> lock(lock_);
  bool found = false;
  blocks_.for_each([&](const Block& block) {
    found = found || (block.state == State::hole && block.stream == stream);
  });
  return found;
}

size_t PoolBlocks::pairs() {
  Locked<SpinLock> lock(lock_);
  return order_.pairs();
}

void PoolBlocks::forget_event(uint64_t event) {
  Locked<SpinLock> lock(lock_);
  order_.forget_event(event);
}

size_t PoolBlocks::streams(uint64_t pool, uint64_t epoch, uint64_t* streams, size_t capacity) {
  Locked<SpinLock> lock(lock_);
  size_t count = 0;
  blocks_.for_each([&](const Block& block) {
    if (block.state != State::hole || block.pool != pool ||
        block.epoch != static_cast<uint32_t>(epoch)) {
      return;
    }
    for (size_t i = 0; i < count; ++i) {
      if (streams[i] == block.stream) return;
    }
    if (count < capacity) streams[count++] = block.stream;
  });
  return count;
}

template <typename Condition>
void PoolBlocks::erase_if(Condition condition) {
  Locked<SpinLock> lock(lock_);
  // Unlinking looks up other blocks, so nothing is erased before all are unlinked.
  blocks_.for_each([&](const Block& block) {
    if (block.is_free() && condition(block)) unlink(block);
  });
  blocks_.erase_if([&](const Block& block) { return condition(block); });
  count();
}

void PoolBlocks::forget_holes(uint64_t pool) {
  if (empty()) return;
  Locked<SpinLock> lock(lock_);
  forget_holes_of(pool);
  count();
}

void PoolBlocks::forget_stream(uint64_t stream) {
  if (empty()) return;
  erase_if(
      [&](const Block& block) { return block.state == State::hole && block.stream == stream; });
  Locked<SpinLock> lock(lock_);
  order_.forget_stream(stream);
}

void PoolBlocks::forget_pool(uint64_t pool) {
  if (empty()) return;
  erase_if([&](const Block& block) { return block.pool == pool; });
  Locked<SpinLock> lock(lock_);
  if (Holes* const holes = holes_.find(pool)) holes_.erase(holes);
}

std::string_view PoolBlocks::check_invariants() {
  Locked<SpinLock> lock(lock_);
  if (const std::string_view broken = blocks_.check_invariants(); !broken.empty()) return broken;
  size_t free = 0, listed = 0;
  blocks_.for_each([&](const Block& block) { free += block.is_free() ? 1 : 0; });
  std::string_view broken;
  holes_.for_each([&](const Holes& holes) {
    for (int size = 0; size < kClasses; ++size) {
      uint64_t newer = 0;
      for (uint64_t address = holes.newest[size]; address != 0 && listed <= free;) {
        const Block* const block = blocks_.find(address);
        if (block == nullptr || !block->is_free() || block->pool != holes.key ||
            class_of(block->bytes) != size || block->newer != newer) {
          broken = "a list of holes holds free blocks of its pool and size";
          return;
        }
        ++listed;
        newer = address;
        address = block->older;
      }
    }
  });
  if (broken.empty() && listed != free) broken = "every free block is in one list";
  if (broken.empty() && count_.load(std::memory_order_relaxed) != blocks_.size())
    broken = "the count of blocks that is read without the lock is that of the table";
  return broken;
}

}  // namespace fracgpu
