// Executable graphs that allocate memory when they run: how much, on which device; and which of
// them ran last.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "shim/base/hash_table.h"
#include "shim/base/spin_lock.h"

namespace fracgpu {

// Any thread may call any function; each takes the lock, and none calls out with it held. `stream`
// is a number that stands for a stream, and is not 0.
class GraphTable {
 public:
  static constexpr int kMaxDevices = 64;

  // A bit for each device on which some graph allocates.
  uint64_t devices() const { return devices_.load(std::memory_order_relaxed); }

  // What a graph needs on a device at once, in units; 0 forgets it. `contained`: it frees all that
  // it allocates.
  void set(const void* exec, int device, uint64_t units, bool contained = true) {
    Locked<SpinLock> lock(lock_);
    const uint64_t key = key_of(exec, device);
    Entry* entry = graphs_.find(key);
    if (entry != nullptr && entry->units == units && entry->contained == contained) return;
    if (last_[device].exec == exec) last_[device].exec = nullptr;
    if (units == 0) {
      if (entry != nullptr) graphs_.erase(entry);
      return;
    }
    if (entry = graphs_.insert(key); entry != nullptr) {
      entry->units = units;
      entry->contained = contained;
    }
    devices_.fetch_or(uint64_t{1} << device, std::memory_order_relaxed);
  }

  uint64_t units(const void* exec, int device) {
    Locked<SpinLock> lock(lock_);
    const Entry* entry = graphs_.find(key_of(exec, device));
    return entry != nullptr ? entry->units : 0;
  }

  // By how much the device's graph memory may grow when the graph runs in the stream, in units.
  // `falls`: how often the memory's charge has fallen. While it does not, the graph that ran last
  // has its memory, and all graphs that ran in one stream since share theirs: they never run at
  // once, so that the driver "can and should use the same physical memory" for them (CUDA
  // programming guide, "Graph Memory Nodes").
  uint64_t growth(const void* exec, int device, uint64_t stream, uint64_t falls) {
    Locked<SpinLock> lock(lock_);
    const Entry* entry = graphs_.find(key_of(exec, device));
    if (entry == nullptr) return 0;
    const Last& last = last_[device];
    if (last.falls == falls && last.exec == exec) return 0;
    const uint64_t shared = entry->contained && last.stream == stream && last.falls == falls
                                ? std::min(last.shared, entry->units)
                                : 0;
    return entry->units - shared;
  }

  // It is about to run there.
  void runs(const void* exec, int device, uint64_t stream, uint64_t falls) {
    Locked<SpinLock> lock(lock_);
    const Entry* entry = graphs_.find(key_of(exec, device));
    if (entry == nullptr) return;
    Last& last = last_[device];
    const bool goes_on = last.stream == stream && last.falls == falls;
    // What one leaves behind is not there for the others.
    const uint64_t shared = !entry->contained ? 0
                            : goes_on         ? std::max(last.shared, entry->units)
                                              : entry->units;
    last = {exec, stream, shared, falls};
  }

  // It did not.
  void forget_last(int device) {
    Locked<SpinLock> lock(lock_);
    last_[device] = {};
  }

  // The stream in which a graph with memory on the device ran last, or 0.
  uint64_t stream_of_last(int device) {
    Locked<SpinLock> lock(lock_);
    return last_[device].stream;
  }

  void forget_stream(uint64_t stream) {
    if (devices() == 0) return;
    Locked<SpinLock> lock(lock_);
    for (Last& last : last_) {
      if (last.stream == stream) last = {};
    }
  }

 private:
  struct Entry {
    uint64_t key;
    uint64_t units;
    bool contained;
  };
  struct Last {
    const void* exec = nullptr;
    uint64_t stream = 0;
    uint64_t shared = 0;  // units that graphs in the stream have in common
    uint64_t falls = 0;
  };

  // Handles are pointers, of less than 57 bits.
  static uint64_t key_of(const void* exec, int device) {
    return reinterpret_cast<uint64_t>(exec) ^ static_cast<uint64_t>(device + 1) << 57;
  }

  SpinLock lock_;
  HashTable<Entry, 16> graphs_;
  Last last_[kMaxDevices];
  std::atomic<uint64_t> devices_{0};
};

}  // namespace fracgpu
