// See call_sites.h.
#include "shim/tracking/call_sites.h"

#include <string.h>

#include <algorithm>

#include "shim/base/call_stack.h"
#include "shim/base/report.h"

namespace fracgpu {

bool CallSites::lives(LiveMap& map, const Site& site) {
  Allocation found;
  return site.units > 0 && map.find(site.key, found) && found.units == site.units &&
         found.device_index == site.device_index;
}

void CallSites::enter(LiveMap& map, const Allocation& allocation) {
  Site site{
      .key = allocation.key, .units = allocation.units, .device_index = allocation.device_index};
  if (take_call_stack != nullptr) take_call_stack(site.frames, kFrames);
  Locked<SpinLock> lock(lock_);
  Site* smallest = nullptr;
  uint32_t least = UINT32_MAX;
  for (Site& other : sites_) {
    const bool replaced = other.key == site.key && other.device_index == site.device_index;
    const uint32_t units = replaced || !lives(map, other) ? 0 : other.units;
    if (smallest == nullptr || units < least || replaced) {
      smallest = &other;
      least = units;
    }
    if (replaced) break;
  }
  if (least < site.units) *smallest = site;
}

void CallSites::report(LiveMap& map, int device_index) {
  Site places[kSites];
  uint64_t sums[kSites] = {};
  unsigned counts[kSites] = {};
  int known = 0;
  {
    Locked<SpinLock> lock(lock_);
    for (const Site& site : sites_) {
      if (site.device_index != device_index || !lives(map, site)) continue;
      int at = 0;
      while (at < known && memcmp(places[at].frames, site.frames, sizeof site.frames) != 0) ++at;
      places[at] = site;
      sums[at] += site.units;
      ++counts[at];
      known = std::max(known, at + 1);
    }
  }
  for (int shown = 0; shown < std::min(known, kReported); ++shown) {
    const auto most = std::max_element(sums, sums + known) - sums;
    fracgpu::report(Level::info, " {} that this process holds in {} of its largest allocations:",
                    human_bytes(sums[most] * layout::kUnit).view(), counts[most]);
    if (report_frames != nullptr) report_frames(places[most].frames, kFrames);
    sums[most] = 0;
  }
}

}  // namespace fracgpu
