// The driver contexts that this process uses: the device of each, and a small id for it.
//
// Every allocation made in the context has that id, so that all of them can be given back when the
// context is destroyed. Finding the current context again costs one comparison.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "shim/base/lazy_array.h"
#include "shim/base/spin_lock.h"

namespace fracgpu {

// The id of contexts beyond the table's size: charged, but not given back with the context.
inline constexpr uint16_t kUntrackedContext = 0;

struct Context {
  const void* handle = nullptr;
  uint16_t id = kUntrackedContext;
  int device = 0;         // the vendor's ordinal
  int device_index = -1;  // device index in the ledger, or Process::kNotCapped / kFault
  int users = 1;          // attach count of the legacy API
};

class ContextTable {
 public:
  // The context with this handle, if known. If there are two, the one that is not being destroyed.
  bool find(const void* handle, Context& context);

  // Enters a context made on the device; returns it as entered.
  Context enter(const void* handle, int device, int device_index);

  // For a context that is about to be destroyed. The driver may then give its handle to another
  // context before the call returns: a context entered from now on gets another id. True with a
  // copy in `context`; false if it is not known, or another thread destroys it.
  bool begin_drop(const void* handle, Context& context);
  // The driver has destroyed the `context` that `begin_drop` found, or (`abandon_drop`) has not.
  // Its id stays taken until `recycle`.
  void finish_drop(const Context& context);
  void abandon_drop(const Context& context);
  void recycle(uint16_t id);
  // All these steps at once.
  bool forget(const void* handle, Context& context) {
    const bool known = begin_drop(handle, context);
    if (known) finish_drop(context);
    return known;
  }

  // Makes this handle of a green context also stand for the base context, which has its memory.
  // Ends when the alias is forgotten or the base ends.
  void enter_alias(const void* handle, const Context& base);
  void forget_alias(const void* handle);

  // Changes an entry's attach count by `change`; returns the new count, or 0 for an unknown handle.
  int attach(const void* handle, int change);

  // Whether any context is on the device with this index in the ledger.
  bool any_on(int device_index);

  // Kinds of things for which the driver takes more memory, the more of them a context has at once.
  // The driver keeps that memory when they are gone.
  enum Kept { streams, graph_bytes, kKinds };

  // The most that a context ever had at once, how much that has just risen, and whether anything
  // was ever removed.
  struct Mark {
    uint64_t most = 0;
    uint64_t rise = 0;
    bool any_removed = false;
  };

  // `amount` more is about to be made.
  Mark add(uint16_t id, Kept kind, uint64_t amount);
  void remove(uint16_t id, Kept kind, uint64_t amount);
  // Whether there ever was any.
  bool any_yet(uint16_t id, Kept kind);
  // It was not made; `mark` is what `add` returned.
  void cancel(uint16_t id, Kept kind, uint64_t amount, const Mark& mark);

  // Kernels' local memory, in bytes per thread: the most that any function needs that the program
  // has got, and the most that the context was observed to have. A launch grows it unseen.
  struct LocalMemory {
    size_t needed = 0;
    size_t seen = 0;

    bool may_grow() const { return needed > seen; }
  };
  LocalMemory local_memory(uint16_t id);
  void need_local_memory(uint16_t id, size_t bytes);
  void see_local_memory(uint16_t id, size_t bytes);
  // Whether any context's local memory may grow: then no thread caches a context.
  bool any_may_grow() const { return may_grow_.load(std::memory_order_relaxed); }

  // Handles of contexts, and of streams in them, may mean others from now on. One thread stores
  // here and then reads how many threads ask about streams; another thread counts itself in and
  // then reads here. At least one must see the other, hence sequential consistency.
  void expire() { epoch_.fetch_add(1, std::memory_order_seq_cst); }
  // Changes whenever that happens: what a thread has cached is valid until then.
  uint64_t epoch() const { return epoch_.load(std::memory_order_seq_cst); }

  // Whether there were ever two contexts at once.
  bool several() const { return several_.load(std::memory_order_relaxed); }

 private:
  // Derived from the size of contexts: by public reports at least 150 MiB, so this many would need
  // 150 GiB of a device.
  static constexpr int kMax = 1024;

  struct Count {
    uint64_t live = 0;
    uint64_t most = 0;  // that ever lived at once
    bool any_removed = false;
  };

  struct Entry {
    Context context;  // without a handle: unused
    Count counts[kKinds];
    LocalMemory local_memory;
    bool leaving = false;  // being destroyed
    bool retired = false;  // forgotten, but allocations with its id may still be listed
  };

  // All need `lock_` held.
  Entry& entry_of(uint16_t id) { return entries_[id - 1]; }
  std::span<Entry> used() { return {&entries_[0], used_}; }
  Entry* find_entry(const void* handle);
  Entry* find_free();
  bool is_alias(const Entry& entry) const { return entry.context.id != &entry - &entries_[0] + 1; }
  void look_what_may_grow();

  SpinLock lock_;
  std::atomic<uint64_t> epoch_{1};
  std::atomic<bool> may_grow_{false};
  std::atomic<bool> several_{false};
  // Entry i has id i + 1, or is an alias and has its base's. Programs have a handful.
  LazyArray<Entry, kMax> entries_;
  size_t used_ = 0;  // of them; the others were never written
};

}  // namespace fracgpu
