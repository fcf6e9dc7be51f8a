// Where this process's largest live allocations came from, for the lines that follow a refusal.
// Kept only if FRACGPU_LOG asks for them: finding a call stack takes longer than an allocation.
//
// Frees are not recorded here. A report asks the map of live allocations which ones still live.
#pragma once

#include <cstdint>

#include "shim/base/spin_lock.h"
#include "shim/tracking/live_map.h"

namespace fracgpu {

class CallSites {
 public:
  // The calling thread's call has made this allocation, which is in the map.
  [[gnu::cold]] void enter(LiveMap& map, const Allocation& allocation);

  // Reports, at level info, where the memory held on the device index was allocated: the largest
  // sums by place.
  void report(LiveMap& map, int device_index);

 private:
  // A report shows three places, of six frames each. Keeping only 32 allocations bounds the walk
  // over them, which each allocation does while FRACGPU_LOG asks for call sites.
  static constexpr int kSites = 32, kFrames = 6, kReported = 3;

  struct Site {
    uint64_t key = 0;
    uint32_t units = 0;
    uint8_t device_index = 0;
    uint64_t frames[kFrames] = {};
  };
  static bool lives(LiveMap& map, const Site& site);

  SpinLock lock_;
  Site sites_[kSites];
};

}  // namespace fracgpu
