// Executable graphs that allocate memory when they run: how much, on which device.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/base/hash_table.h"
#include "shim/base/spin_lock.h"

namespace fracgpu {

class GraphTable {
 public:
  static constexpr int kMaxDevices = 64;

  // A bit for each device on which some graph allocates.
  uint64_t devices() const { return devices_.load(std::memory_order_relaxed); }

  // What a graph allocates on a device, in units; 0 forgets it.
  void set(const void* exec, int device, uint64_t units) {
    Locked<SpinLock> lock(lock_);
    const uint64_t key = key_of(exec, device);
    if (units == 0) {
      if (Entry* entry = graphs_.find(key); entry != nullptr) graphs_.erase(entry);
      return;
    }
    if (Entry* entry = graphs_.insert(key); entry != nullptr) entry->units = units;
    devices_.fetch_or(uint64_t{1} << device, std::memory_order_relaxed);
  }

  uint64_t units(const void* exec, int device) {
    Locked<SpinLock> lock(lock_);
    const Entry* entry = graphs_.find(key_of(exec, device));
    return entry != nullptr ? entry->units : 0;
  }

 private:
  struct Entry {
    uint64_t key;
    uint64_t units;
  };

  // Handles are pointers, of less than 57 bits.
  static uint64_t key_of(const void* exec, int device) {
    return reinterpret_cast<uint64_t>(exec) ^ static_cast<uint64_t>(device + 1) << 57;
  }

  SpinLock lock_;
  HashTable<Entry, 16> graphs_;
  std::atomic<uint64_t> devices_{0};
};

}  // namespace fracgpu
