// Counting the totals again from the rows, when somebody died in the middle of an update: updates
// are frozen for a moment, every living owner is waited out of its few stores, and each total
// becomes the sum of the rows. A reaper that is itself killed leaves the epoch odd or the freeze
// set, and whoever takes the lock next counts again.
#include <sched.h>

#include <numeric>
#include <vector>

#include "sim/node/marks.h"
#include "sim/node/reap.h"

namespace sim {
namespace {

// What the rows of processes and of shared memory come to, by tenant.
std::vector<uint64_t> sums(const NodeFile& file, int dev) {
  std::vector<uint64_t> tenants(kMaxTenants);
  for (const ProcessRow& row : file.process) {
    if (!in_use(row)) continue;
    tenants[row.tenant] +=
        row.device[dev].context_bytes.load() + row.device[dev].allocation_bytes.load();
  }
  for (const ObjectRow& object : file.object) {
    if (live(object) && object.device == dev) tenants[object.tenant] += object.bytes;
  }
  return tenants;
}

}  // namespace

// The caller holds the reap lock.
void Node::recount() {
  Header& header = file_->header;
  header.freeze.store(1);
  NodeDescriptor file(path_);
  uint32_t live = 0;
  for (int i = 0; i < kMaxProcesses; ++i) {
    ProcessRow& row = file_->process[i];
    if (!in_use(row)) continue;
    ++live;
    // An update is a handful of stores: only a dead owner stays in one, and its row is reaped in
    // its turn.
    for (int spins = 1; row.busy.load() != 0; ++spins) {
      if (spins % 64 == 0 && file.fd() >= 0 && !file.held_elsewhere(kRowLockBase + i)) break;
      sched_yield();
    }
  }
  for (int dev = 0; dev < device_count(); ++dev) {
    const std::vector<uint64_t> tenants = sums(*file_, dev);
    for (int i = 0; i < kMaxTenants; ++i)
      set_recounted(file_->tenant[i].device[dev], tenants[static_cast<size_t>(i)]);
    file_->device[dev].used.store(std::accumulate(tenants.begin(), tenants.end(), uint64_t{0}));
  }
  uint32_t objects = 0;
  for (const ObjectRow& object : file_->object)
    objects += object.state.load() != static_cast<uint32_t>(ObjectState::kFree) ? 1 : 0;
  header.objects.store(objects);
  header.live_processes.store(live);
  header.freeze.store(0);
}

// An update that met the freeze waits here; if the counter died, this process counts in its place.
void Node::wait_for_recount() {
  ReapLock lock(*this);
  if (!lock.held()) {
    sched_yield();
    return;
  }
  if (file_->header.freeze.load() == 0) return;
  uint64_t epoch = file_->header.epoch.load();
  if ((epoch & 1) == 0) file_->header.epoch.store(++epoch);
  recount();
  file_->header.epoch.store(epoch + 1);
}

bool Node::consistent(std::string* difference) {
  reap();
  for (int dev = 0; dev < device_count(); ++dev) {
    const std::vector<uint64_t> rows = sums(*file_, dev);
    const uint64_t sum = std::accumulate(rows.begin(), rows.end(), uint64_t{0});
    uint64_t tenants = 0;
    for (const TenantRow& tenant : file_->tenant) tenants += tenant.device[dev].used();
    const uint64_t used = file_->device[dev].used.load();
    if (sum == used && sum == tenants) continue;
    if (difference != nullptr) {
      *difference = "device " + std::to_string(dev) + ": rows " + std::to_string(sum) +
                    ", device " + std::to_string(used) + ", tenants " + std::to_string(tenants);
    }
    return false;
  }
  return true;
}

}  // namespace sim
