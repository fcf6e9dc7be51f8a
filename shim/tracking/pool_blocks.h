// The blocks that pools have handed out, and those that were freed in stream order: the holes.
//
// A driver uses a hole again for the next allocation on the stream that freed it, at once. It also
// does so on a stream that comes after the free by an event, before it takes more memory (CUDA
// programming guide, "Stream Ordered Memory Allocator"; cudaMemPoolReuseFollowEventDependencies).
// The rest of the chunk by which a pool has grown last, its last tail, serves any stream, and is
// used before more memory is taken (libcuda 535.261.03). Both hold only for a whole pool. Once the
// program has waited for the frees, libcuda takes the lowest addresses that fit, and takes chunks
// for them if the pool has given back those that were there. An allocation can rely on no other
// memory of a pool: pools with gigabytes unused have failed to serve some hundred MiB
// (rapidsai/rmm#1245, pytorch/pytorch#110194). So holes are known by their addresses. If an
// allocation lands where no hole is known, in a pool that has not grown, it may consist of any of
// the holes, since drivers remap unused memory. All holes of the pool are then forgotten. They are
// also forgotten whenever the pool may have shrunk.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "shim/base/hash_table.h"
#include "shim/base/spin_lock.h"
#include "shim/tracking/stream_order.h"

namespace fracgpu {

// Pools and graph memory grow by whole chunks of this size (libcuda 535.261.03); tests/hardware.sh
// measures it, as sweep.pool_chunk_bytes.
inline constexpr uint64_t kPoolChunkBytes = 32u << 20;

// Any thread may call any function; each takes the lock, and none calls out with it held. Amounts
// are bytes. `stream` is a number that stands for a stream as long as it lives, and is not 0.
class PoolBlocks {
 public:
  // The driver handed out a block of the pool, which grew by `grown` for it and has `reserved` now
  // (0: not known). If the host is out of memory, holes are forgotten.
  enum class Growth {
    none,
    extended,  // the block is the last tail plus the pool's growth
    apart,     // despite a last tail, which would have been a part of it
  };
  Growth allocated(uint64_t pool, uint64_t address, uint64_t bytes, uint64_t grown,
                   uint64_t reserved = 0);

  // The same if the block is a whole hole, and the pool has memory at all of its addresses if it
  // has `reserved` in all. False: nothing is done.
  bool take_hole(uint64_t pool, uint64_t address, uint64_t bytes, uint64_t reserved);

  // Whether the pool has memory at all of its addresses if it has `reserved` in all.
  bool is_whole(uint64_t pool, uint64_t reserved);

  // The block at this address is about to be freed in stream order. Returns the number of this
  // free, for end_free or cancel_free, or 0 if no block is known there.
  uint64_t begin_free(uint64_t address);
  // It was freed: there is a hole. `epoch` limits how long the stream is sure to live; see
  // `streams`.
  void end_free(uint64_t address, uint64_t number, uint64_t stream, uint64_t epoch);
  void cancel_free(uint64_t address, uint64_t number);

  // The memory at this address is freed at once, or by another process or library: it becomes no
  // hole.
  void forget(uint64_t address);

  // Whether a hole of the stream, or a tail, holds as much.
  bool fits(uint64_t pool, uint64_t stream, uint64_t bytes);
  // The same for a hole that the stream comes after by an event.
  bool fits_after_event(uint64_t pool, uint64_t stream, uint64_t bytes, uint64_t epoch);

  // The bytes that are left of the chunk by which the pool has grown last.
  uint64_t last_tail(uint64_t pool);

  // Events; see StreamOrder. The driver already knows all frees up to `moment`.
  uint64_t moment() const { return last_free_.load(std::memory_order_acquire); }
  void record(uint64_t event, uint64_t stream, uint64_t moment, uint64_t epoch);
  void wait(uint64_t stream, uint64_t event, uint64_t epoch);
  void forget_event(uint64_t event);

  // Whether the stream has a hole. It has then not been forgotten.
  bool has_hole(uint64_t stream);
  // The number of pairs of streams of which one is known to come after the other.
  size_t pairs();

  // Copies at most `capacity` streams with holes of `epoch` in the pool. Returns how many.
  size_t streams(uint64_t pool, uint64_t epoch, uint64_t* streams, size_t capacity);

  void forget_holes(uint64_t pool);
  void forget_stream(uint64_t stream);
  void forget_pool(uint64_t pool);  // with its blocks

  // Whether any block is known; costs one comparison.
  bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }

  // The first invariant that does not hold, in words, or nothing; see base/invariants.h.
  std::string_view check_invariants();

 private:
  enum class State : uint8_t { used, leaving, hole, tail };

  struct Block {
    uint64_t key = 0;  // address
    uint64_t bytes = 0;
    uint64_t pool = 0;
    uint64_t stream = 0;  // that freed it
    // Holes and tails of a pool of similar size are a list: addresses, or 0.
    uint64_t newer = 0, older = 0;
    uint64_t number = 0;  // of its last free: its beginning; for a hole, its end
    uint32_t epoch = 0;
    State state = State::used;

    bool is_free() const { return state >= State::hole; }
  };

  static constexpr size_t kFewPairs = 256;
  static constexpr int kClasses = 64;
  static int class_of(uint64_t bytes) { return 63 - __builtin_clzll(bytes | 1); }

  struct Holes {
    uint64_t key = 0;   // pool
    uint64_t base = 0;  // its lowest address; 0: not known
    uint64_t end = 0;   // of the chunk by which it has grown last
    // The highest end of any chunk: memory may follow a lower end. Less than a chunk too low if a
    // block began in unknown memory.
    uint64_t top = 0;
    uint64_t newest[kClasses] = {};
  };

  // All need the lock held.
  template <typename Condition>
  bool any_hole(uint64_t pool, uint64_t bytes, Condition condition);
  void enter_free(const Block& block);
  void link(Block& block);
  void unlink(const Block& block);
  void unlink(const Block& block, Holes& holes);  // `holes`: those of its pool
  void erase(uint64_t address);
  void forget_holes_of(uint64_t pool);
  const Block* find_last_tail(uint64_t pool);
  void note_range(const Block& block, uint64_t end, uint64_t grown, uint64_t reserved);
  void forget_pairs(uint64_t epoch);
  template <typename Condition>
  void erase_if(Condition condition);
  void count() { count_.store(blocks_.size(), std::memory_order_relaxed); }

  SpinLock lock_;
  HashTable<Block, 16> blocks_;
  HashTable<Holes, 4> holes_;  // an entry for each pool that had any
  std::atomic<size_t> count_{0};
  StreamOrder order_;
  size_t most_pairs_ = kFewPairs;       // of `order_`, before useless ones are removed
  std::atomic<uint64_t> last_free_{0};  // written with the lock held
};

}  // namespace fracgpu
