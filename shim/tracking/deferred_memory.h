// OpenCL's memory objects, for which a driver takes memory at the first use, not at creation.
//
// No call reports the first use, so objects are charged when they are created, and the
// driver-reported usage may be less. A context spans several devices, and each of them may come to
// hold all of the context's memory.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>

#include "fracgpu/ledger_layout.h"
#include "shim/base/hash_table.h"
#include "shim/base/spin_lock.h"
#include "shim/tracking/chunk_placement.h"

namespace fracgpu {

class Process;

using Devices = std::bitset<layout::kMaxDevices>;  // by their index in the ledger

template <typename Visit>
void for_each(const Devices& devices, Visit visit) {
  for (size_t i = devices._Find_first(); i < devices.size(); i = devices._Find_next(i))
    visit(static_cast<int>(i));
}

// Any thread may call any function.
class DeferredMemory {
 public:
  // Linear memory and images have separate chunks. The driver takes `at_once` memory at creation.
  enum class Kind : uint8_t { linear, image, at_once };

  struct Size {
    Kind kind = Kind::linear;
    uint64_t units = 0;     // to charge; for a small one, its whole chunk
    uint32_t in_chunk = 0;  // units of the chunk that it shares; 0: it shares none
  };

  struct Block;

  struct Context {
    Process* process;
    const void* handle;
    Devices devices;
    bool is_faulty;          // one of its devices has no index in the ledger: it takes no memory
    bool tells_end = false;  // `drop` will be called, maybe after its handle means another one
    bool has_ended = false;  // and goes with its last block
    uint64_t blocks = 0;
    // The local memory of threads that launches will take, and its bytes per thread. Used with
    // Process::limits held.
    uint64_t local_bytes = 0;
    Block* local_memory = nullptr;
    ChunkPlacement chunks[2] = {};  // by Kind
    // The live queues on a device, and the most that there were at once.
    struct Queues {
      uint32_t live = 0, most = 0;
    };
    Queues queues[layout::kMaxDevices] = {};
  };

  struct Block {
    Context* context;
    Size size;
    ChunkPlacement::Place place;
    uint64_t address;  // its key in `addresses_`; 0: none
    bool is_leaving;   // released for the last time
    Block* next;       // next free block, or next block of local memory
  };

  // The context with this handle, or null.
  Context* find(const void* handle) {
    Locked<SpinLock> lock(lock_);
    const Known* const known = contexts_.find(reinterpret_cast<uint64_t>(handle));
    return known != nullptr ? known->context : nullptr;
  }

  // Enters a context. An older one with its handle has ended unseen. Null if the host is out of
  // memory.
  Context* enter(Process& process, const void* handle, const Devices& devices, bool is_faulty) {
    void* const bytes = map(sizeof(Context));
    if (bytes == nullptr) return nullptr;
    auto* const context = new (bytes)
        Context{.process = &process, .handle = handle, .devices = devices, .is_faulty = is_faulty};
    Locked<SpinLock> lock(lock_);
    Known* const known = contexts_.insert(reinterpret_cast<uint64_t>(handle));
    if (known == nullptr) {
      munmap(bytes, sizeof(Context));
      return nullptr;
    }
    if (known->context != nullptr && !known->context->tells_end) end(known->context);
    known->context = context;
    return context;
  }

  // The context has ended. The rest of its memory is about to go.
  void drop(Context* context) {
    Locked<SpinLock> lock(lock_);
    Known* const known = contexts_.find(reinterpret_cast<uint64_t>(context->handle));
    if (known != nullptr && known->context == context) contexts_.erase(known);
    end(context);
  }

  // Adds a block in a chunk's hole, for which nothing need be charged. Null: there is no such hole.
  Block* add_in_hole(Context& context, const Size& size) {
    if (size.in_chunk == 0) return nullptr;
    Locked<SpinLock> lock(lock_);
    ChunkPlacement::Place place;
    if (!chunks_of(context, size).take_hole(occupancies_, size.in_chunk, place)) return nullptr;
    Block* const block = make(context, size, place);
    if (block == nullptr) chunks_of(context, size).give_back(occupancies_, place);
    return block;
  }

  // Adds a block for which `size.units` are charged. `shares`: a chunk has a hole for it by now,
  // and the units are to be given back. Null if the host is out of memory.
  Block* add(Context& context, const Size& size, bool& shares) {
    Locked<SpinLock> lock(lock_);
    ChunkPlacement::Place place;
    shares =
        size.in_chunk > 0 && chunks_of(context, size).take_hole(occupancies_, size.in_chunk, place);
    if (size.in_chunk > 0 && !shares &&
        !chunks_of(context, size).add_chunk(occupancies_, size.in_chunk, place)) {
      return nullptr;
    }
    Block* const block = make(context, size, place);
    if (block == nullptr && size.in_chunk > 0)
      chunks_of(context, size).give_back(occupancies_, place);
    if (block != nullptr && !shares) count(context, size, 1);
    return block;
  }

  // Removes a block; returns the units to give back on each of its context's devices.
  uint64_t remove(Block* block) {
    Locked<SpinLock> lock(lock_);
    Context& context = *block->context;
    const Size size = block->size;
    const bool is_last =
        size.in_chunk == 0 || chunks_of(context, size).give_back(occupancies_, block->place);
    if (is_last) count(context, size, -1);
    forget_address(*block);
    if (block->is_leaving) ++destroyed;
    --blocks_;
    block->next = free_;
    free_ = block;
    if (--context.blocks == 0 && context.has_ended) discard(&context);
    return is_last ? size.units : 0;
  }

  // A queue is about to be made in the context. Returns the number of queues with it if that is a
  // new maximum, otherwise 0.
  uint32_t add_queue(Context& context, int device_index) {
    Locked<SpinLock> lock(lock_);
    Context::Queues& queues = context.queues[device_index];
    return ++queues.live > queues.most ? queues.most = queues.live : 0;
  }
  void remove_queue(Context& context, int device_index) {
    Locked<SpinLock> lock(lock_);
    Context::Queues& queues = context.queues[device_index];
    if (queues.live > 0) --queues.live;
  }
  // The queue was not made, so its memory is still to be taken by a later one.
  void cancel_queue(Context& context, int device_index) {
    Locked<SpinLock> lock(lock_);
    Context::Queues& queues = context.queues[device_index];
    if (queues.live-- == queues.most) --queues.most;
  }

  // The block has this address, or handle, until it is removed or `take`n by that.
  bool enter_address(uint64_t address, Block* block) {
    Locked<SpinLock> lock(lock_);
    Addressed* const entry = addresses_.insert(address);
    if (entry == nullptr) return false;
    entry->block = block;
    block->address = address;
    return true;
  }
  // Null: no block has it. `is_leaving`: a thread of the driver will remove the block later.
  Block* take(uint64_t address, bool is_leaving) {
    Locked<SpinLock> lock(lock_);
    Addressed* const entry = address != 0 ? addresses_.find(address) : nullptr;
    if (entry == nullptr) return nullptr;
    Block* const block = entry->block;
    forget_address(*block);
    block->is_leaving = is_leaving;
    if (is_leaving) ++released;
    return block;
  }

  struct Sum {
    uint64_t units = 0;     // charged
    uint64_t deferred = 0;  // of `units`: the most that the driver has not taken yet
    uint64_t changes = 0;   // differs from an earlier value if anything came or went
  };
  Sum sum(int device_index) {
    Locked<SpinLock> lock(lock_);
    const Charged& charged = charged_[device_index];
    return {charged.units, charged.deferred, changes_};
  }

  uint64_t blocks() const { return blocks_.load(std::memory_order_relaxed); }

  // How many blocks were released for the last time, and how many of them are removed. They differ
  // while the driver's thread, which destroys objects, is behind.
  std::atomic<uint64_t> released{0}, destroyed{0};
  std::atomic<uint64_t> awaited_in_vain{0};  // value of `released` at the last wait in vain
  // A context has ended, and the driver may have given its memory back by now.
  std::atomic<bool> any_context_ended{false};
  // When a context was last released or ended (coarse_now_ms()). The driver gives its memory back
  // on its own thread, some time after that.
  std::atomic<uint64_t> context_left_ms{0};

 private:
  struct Known {
    uint64_t key;
    Context* context;
  };
  struct Addressed {
    uint64_t key;
    Block* block;
  };
  struct Charged {
    uint64_t units = 0, deferred = 0;
  };

  static void* map(size_t bytes) {
    void* const mapped =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return mapped == MAP_FAILED ? nullptr : mapped;
  }

  static ChunkPlacement& chunks_of(Context& context, const Size& size) {
    return context.chunks[size.kind == Kind::image ? 1 : 0];
  }

  static void end(Context* context) {
    context->has_ended = true;
    if (context->blocks == 0) discard(context);
  }

  static void discard(Context* context) {
    for (ChunkPlacement& chunks : context->chunks) chunks.clear();
    munmap(context, sizeof(Context));
  }

  // This function and those below need `lock_` held.
  void count(const Context& context, const Size& size, int sign) {
    ++changes_;
    const uint64_t units = sign > 0 ? size.units : -size.units;
    for_each(context.devices, [&](int device_index) {
      charged_[device_index].units += units;
      if (size.kind != Kind::at_once) charged_[device_index].deferred += units;
    });
  }

  void forget_address(Block& block) {
    Addressed* const entry = block.address != 0 ? addresses_.find(block.address) : nullptr;
    if (entry != nullptr && entry->block == &block) addresses_.erase(entry);
    block.address = 0;
  }

  Block* make(Context& context, const Size& size, const ChunkPlacement::Place& place) {
    constexpr size_t kSlab = 64u << 10;
    if (free_ == nullptr) {
      auto* const slab = static_cast<Block*>(map(kSlab));
      if (slab == nullptr) return nullptr;
      for (size_t i = 0; i < kSlab / sizeof(Block); ++i) {
        slab[i].next = free_;
        free_ = &slab[i];
      }
    }
    Block* const block = free_;
    free_ = block->next;
    *block = Block{&context, size, place, 0, false, nullptr};
    ++blocks_;
    ++context.blocks;
    return block;
  }

  SpinLock lock_;
  HashTable<Known, 4> contexts_;
  HashTable<Addressed, 4> addresses_;
  ChunkOccupancies occupancies_;
  Charged charged_[layout::kMaxDevices];
  uint64_t changes_ = 0;
  std::atomic<uint64_t> blocks_{0};
  Block* free_ = nullptr;
};

}  // namespace fracgpu
