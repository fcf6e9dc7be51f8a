// The arithmetic of tallies. The dead are the difficulty: their memory stays in the tally until
// they are buried, and a peak reached meanwhile is not one that the living held. Whoever died
// before the peak held at the peak what it holds in its row, so the peak less that is what the
// living held, or less than that: a mark is never too high. If the one who died reached the peak
// itself, all of it was alive.
#include "sim/node/marks.h"

#include <algorithm>

#include "sim/node/node.h"

namespace sim {

void raise_mark(TenantDevice& tenant, uint64_t bytes) {
  uint64_t mark = tenant.high_water.load();
  while (mark < bytes && !tenant.high_water.compare_exchange_weak(mark, bytes)) {
  }
}

void bury(TenantDevice& tenant, uint64_t bytes, int only_row) {
  const uint64_t grains = bytes / kGrain;
  Tally now = tenant.tally.load();
  Tally next;
  do {
    const bool own = only_row >= 0 && now.climber == static_cast<uint64_t>(only_row) + 1;
    // Before the peak is taken out of the tally: a reaper may be killed here too.
    raise_mark(tenant, (own ? now.peak : now.peak - std::min<uint64_t>(now.peak, grains)) * kGrain);
    next = now;
    next.used = now.used - std::min<uint64_t>(now.used, grains);
    next.peak = next.used;
    next.climber = 0;
  } while (!tenant.tally.compare_exchange_weak(now, next));
}

void set_recounted(TenantDevice& tenant, uint64_t bytes) {
  Tally tally = tenant.tally.load();
  // A sum can exceed the device for the moment until a dead sharer, counted twice, is buried.
  const uint64_t grains = std::min(bytes / kGrain, kMaxTally);
  // What the sum was wrong by, the peak since then is wrong by too.
  const uint64_t peak = tally.peak + grains >= tally.used ? tally.peak + grains - tally.used : 0;
  tally.used = grains;
  tally.peak = std::max(peak, grains);
  // Some of the difference may be that of another process that has died in an update and is not
  // buried yet, and not have been there at the peak. Then it is in that one's row.
  tally.climber = 0;
  tenant.tally.store(tally);
}

// The peak is read first, then every owner is found alive, and the epoch shows that nobody was
// buried in between; burying makes the epoch odd and settles the peak itself.
void Node::confirm_mark(int tenant, int dev, int except_row) {
  TenantDevice& held = file_->tenant[tenant].device[dev];
  const std::atomic<uint64_t>& epoch = file_->header.epoch;
  for (;;) {
    const uint64_t before = epoch.load();
    const uint64_t peak = held.tally.load().peak * kGrain;
    if (peak <= held.high_water.load()) return;
    reap(tenant, except_row);
    if ((before & 1) != 0 || epoch.load() != before) continue;
    raise_mark(held, peak);
    return;
  }
}

void Node::reset_high_water() {
  reap();
  for (TenantRow& tenant : file_->tenant) {
    for (TenantDevice& device : tenant.device) {
      Tally now = device.tally.load();
      Tally next;
      do {
        next = now;
        next.peak = now.used;
        next.climber = 0;
      } while (!device.tally.compare_exchange_weak(now, next));
      device.high_water.store(next.used * kGrain);
    }
  }
}

}  // namespace sim
