// Executable graphs: what the driver took when it made them, how much memory they allocate when
// they run, on which device, and which one ran last.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include "shim/base/hash_table.h"
#include "shim/base/spin_lock.h"

namespace fracgpu {

// Any thread may call any function; each takes the lock, and none calls out with it held. `stream`
// is a number that stands for a stream, and is not 0.
class GraphTable {
  // The graph that ran last on a device.
  struct Last {
    const void* exec = nullptr;
    uint64_t stream = 0;
    uint64_t shared = 0;  // units that graphs in the stream share
    uint64_t falls = 0;
  };

 public:
  static constexpr int kMaxDevices = 64;

  // One bit for each device on which a graph allocates.
  uint64_t devices() const { return devices_.load(std::memory_order_relaxed); }

  // Sets what a graph needs on a device at once, in units; 0 forgets it. `contained`: it frees all
  // that it allocates.
  void set(const void* exec, int device, uint64_t units, bool contained = true) {
    Locked<SpinLock> lock(lock_);
    const uint64_t key = key_of(exec, device);
    Entry* entry = graphs_.find(key);
    if (entry != nullptr && entry->units == units && entry->contained == contained) return;
    if (last_[device].exec == exec) last_[device].exec = nullptr;
    ++changes_;
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

  // What is known of an executable graph: the context in which it was made, the most bytes that the
  // driver took for that, and what it needs on each device.
  struct Graph {
    uint16_t context = 0;
    uint64_t bytes = 0;
    struct Need {
      int device;
      uint64_t units;
      bool contained;
    };
    std::array<Need, kMaxDevices> needs;
    int need_count = 0;
  };

  void set_made(const void* exec, uint16_t context, uint64_t bytes) {
    Locked<SpinLock> lock(lock_);
    Made* const made = bytes != 0 ? made_.insert(reinterpret_cast<uint64_t>(exec)) : nullptr;
    if (made == nullptr) return;
    made->bytes = bytes;
    made->context = context;
  }

  // Forgets the graph before the driver destroys it, since its handle may mean another one at once.
  Graph take(const void* exec) {
    Graph graph;
    for (uint64_t left = devices(); left != 0; left &= left - 1) {
      const int device = std::countr_zero(left);
      Locked<SpinLock> lock(lock_);
      const Entry* const entry = graphs_.find(key_of(exec, device));
      if (entry == nullptr) continue;
      graph.needs[static_cast<size_t>(graph.need_count++)] = {device, entry->units,
                                                              entry->contained};
    }
    for (int i = 0; i < graph.need_count; ++i)
      set(exec, graph.needs[static_cast<size_t>(i)].device, 0);
    Locked<SpinLock> lock(lock_);
    if (Made* const made = made_.find(reinterpret_cast<uint64_t>(exec)); made != nullptr) {
      graph.context = made->context;
      graph.bytes = made->bytes;
      made_.erase(made);
    }
    return graph;
  }
  // The driver has not destroyed it.
  void put_back(const void* exec, const Graph& graph) {
    set_made(exec, graph.context, graph.bytes);
    for (int i = 0; i < graph.need_count; ++i) {
      const Graph::Need& need = graph.needs[static_cast<size_t>(i)];
      set(exec, need.device, need.units, need.contained);
    }
  }

  // The memory that the driver took in the context is gone with it.
  void forget_context(uint16_t context) {
    Locked<SpinLock> lock(lock_);
    made_.erase_if([&](const Made& made) { return made.context == context; });
  }

  // By how much the device's graph memory may grow when the graph runs in the stream, in units.
  // `falls`: how often the memory's charge has fallen. While it does not fall, the graph that ran
  // last has its memory, and all graphs that ran in one stream since share theirs. They never run
  // at once, so that the driver "can and should use the same physical memory" for them (CUDA
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

  // A run, from before the driver is called for it.
  class Run {
    friend class GraphTable;
    Last last_;
    uint64_t number_ = 0;  // 0: it takes no memory on the device
    bool alone_ = false;
  };

  // The graph is about to run on the device. The driver may fail, so no other run can count on its
  // memory until `end_run`.
  Run begin_run(const void* exec, int device, uint64_t stream, uint64_t falls) {
    Locked<SpinLock> lock(lock_);
    Run run;
    const Entry* entry = graphs_.find(key_of(exec, device));
    if (entry == nullptr) return run;
    Last& last = last_[device];
    const bool goes_on = last.stream == stream && last.falls == falls;
    // Memory that a graph leaves allocated is not there for other graphs.
    const uint64_t shared = !entry->contained ? 0
                            : goes_on         ? std::max(last.shared, entry->units)
                                              : entry->units;
    run.last_ = {exec, stream, shared, falls};
    run.number_ = ++changes_;
    run.alone_ = running_[device]++ == 0;
    last = {nullptr, stream, 0, falls};
    return run;
  }

  // Called once for each run. `is_there`: the driver has started it, and its memory is charged. If
  // there was another run at the same time, it is not known which of them came last.
  void end_run(int device, const Run& run, bool is_there) {
    if (run.number_ == 0) return;
    Locked<SpinLock> lock(lock_);
    --running_[device];
    if (is_there && run.alone_ && run.number_ == changes_) last_[device] = run.last_;
  }

  // The stream in which a graph with memory on the device ran last, or 0.
  uint64_t stream_of_last(int device) {
    Locked<SpinLock> lock(lock_);
    return last_[device].stream;
  }

  // Whether the stream is the last one on any device. It has then not been forgotten.
  bool is_last(uint64_t stream) {
    if (devices() == 0) return false;
    Locked<SpinLock> lock(lock_);
    return std::any_of(std::begin(last_), std::end(last_),
                       [&](const Last& last) { return last.stream == stream; });
  }

  void forget_stream(uint64_t stream) {
    forget_streams([&](uint64_t known) { return known == stream; });
  }
  // Forgets all streams: it is not known which ones belong to a context that ends.
  void forget_streams() {
    forget_streams([](uint64_t) { return true; });
  }

 private:
  template <typename Condition>
  void forget_streams(Condition condition) {
    if (devices() == 0) return;
    Locked<SpinLock> lock(lock_);
    ++changes_;
    for (Last& last : last_) {
      if (condition(last.stream)) last = {};
    }
  }

  struct Entry {
    uint64_t key;
    uint64_t units;
    bool contained;
  };
  struct Made {
    uint64_t key;
    uint64_t bytes;
    uint16_t context;
  };

  // Handles are pointers, of less than 57 bits.
  static uint64_t key_of(const void* exec, int device) {
    return reinterpret_cast<uint64_t>(exec) ^ static_cast<uint64_t>(device + 1) << 57;
  }

  SpinLock lock_;
  HashTable<Entry, 16> graphs_;
  HashTable<Made, 16> made_;
  Last last_[kMaxDevices];
  uint32_t running_[kMaxDevices] = {};  // runs that have begun and not ended
  uint64_t changes_ = 0;                // of the last run, on any device
  std::atomic<uint64_t> devices_{0};
};

}  // namespace fracgpu
