// Giving back the memory of dead processes, and counting the totals again when one died in the
// middle of an update. A row whose owner was between updates is simply subtracted. Otherwise
// updates are frozen for a moment, every living owner is waited out of its few stores, and each
// total becomes the sum of the rows; a reaper that is itself killed leaves the epoch odd or the
// freeze set, and whoever takes the lock next counts again.
#include "reap.h"

#include <fcntl.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

namespace sim {

NodeDescriptor::NodeDescriptor(const std::string& path)
    : fd_(::open(path.c_str(), O_RDWR | O_CLOEXEC)) {}

NodeDescriptor::~NodeDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

bool NodeDescriptor::lock(int64_t offset, bool wait) const {
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = offset;
  range.l_len = 1;
  int rc;
  do {
    rc = fcntl(fd_, wait ? F_OFD_SETLKW : F_OFD_SETLK, &range);
  } while (rc != 0 && errno == EINTR);
  return rc == 0;
}

bool NodeDescriptor::held_elsewhere(int64_t offset) const {
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = offset;
  range.l_len = 1;
  // A probe that fails must not kill: what cannot be asked counts as alive.
  return fcntl(fd_, F_OFD_GETLK, &range) != 0 || range.l_type != F_UNLCK;
}

ReapLock::ReapLock(Node& node)
    : descriptor_(node.path()), held_(descriptor_.fd() >= 0 && descriptor_.lock(kReapLock, true)) {}

uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000ULL + static_cast<uint64_t>(now.tv_nsec);
}

namespace {

bool in_use(const ProcessRow& row) {
  return row.state.load(std::memory_order_acquire) == static_cast<uint32_t>(RowState::kLive);
}

// Dead, and its memory due back.
bool due(const NodeDescriptor& file, ProcessRow& row, int index) {
  if (file.held_elsewhere(kRowLockBase + index)) return false;
  if (row.linger_ns == 0) return true;
  const uint64_t now = monotonic_ns();
  uint64_t noticed = 0;
  if (row.dead_since.compare_exchange_strong(noticed, now)) noticed = now;
  return now - noticed >= row.linger_ns;
}

}  // namespace

bool Node::any_dead(int tenant, int except_row) {
  const uint32_t others = except_row >= 0 ? 1 : 0;
  if (file_->header.live_processes.load(std::memory_order_acquire) <= others) return false;
  NodeDescriptor file(path_);
  if (file.fd() < 0) return false;
  for (int i = 0; i < kMaxProcesses; ++i) {
    ProcessRow& row = file_->process[i];
    if (i == except_row || !in_use(row)) continue;
    if (tenant >= 0 && row.tenant != static_cast<uint32_t>(tenant)) continue;
    if (due(file, row, i)) return true;
  }
  return false;
}

int Node::reap(int tenant, int except_row) {
  Header& header = file_->header;
  const bool interrupted = (header.epoch.load() & 1) != 0 || header.freeze.load() != 0;
  if (!interrupted && !any_dead(tenant, except_row)) return 0;
  ReapLock lock(*this);
  if (!lock.held()) return 0;
  NodeDescriptor file(path_);
  if (file.fd() < 0) return 0;

  // Now nobody else reaps: an odd epoch or a freeze can only be a dead reaper's.
  uint64_t epoch = header.epoch.load();
  bool again = (epoch & 1) != 0 || header.freeze.load() != 0;
  if ((epoch & 1) == 0) header.epoch.store(++epoch);
  int reaped = 0;
  for (int i = 0; i < kMaxProcesses; ++i) {
    ProcessRow& row = file_->process[i];
    if (i == except_row || !in_use(row) || !due(file, row, i)) continue;
    again = again || row.busy.load() != 0;
    for (uint32_t dev = 0; dev < header.device_count; ++dev) {
      ProcessDevice& use = row.device[dev];
      const uint64_t bytes = use.context_bytes.load() + use.allocation_bytes.load();
      use.context_bytes.store(0);
      use.allocation_bytes.store(0);
      use.contexts.store(0);
      if (bytes == 0 || again) continue;
      file_->tenant[row.tenant].device[dev].used.fetch_sub(bytes);
      file_->device[dev].used.fetch_sub(bytes);
    }
    row.busy.store(0);
    row.state.store(static_cast<uint32_t>(RowState::kFree), std::memory_order_release);
    header.live_processes.fetch_sub(1);
    ++reaped;
  }
  if (again) recount();
  header.epoch.store(epoch + 1);
  return reaped;
}

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
  for (uint32_t dev = 0; dev < header.device_count; ++dev) {
    uint64_t device_sum = 0;
    uint64_t tenant_sum[kMaxTenants] = {};
    for (const ProcessRow& row : file_->process) {
      if (!in_use(row)) continue;
      const uint64_t bytes =
          row.device[dev].context_bytes.load() + row.device[dev].allocation_bytes.load();
      device_sum += bytes;
      tenant_sum[row.tenant] += bytes;
    }
    file_->device[dev].used.store(device_sum);
    for (int i = 0; i < kMaxTenants; ++i) file_->tenant[i].device[dev].used.store(tenant_sum[i]);
  }
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

void Node::reset_high_water() {
  reap();
  for (TenantRow& tenant : file_->tenant) {
    for (TenantDevice& device : tenant.device) device.high_water.store(device.used.load());
  }
}

bool Node::consistent(std::string* difference) {
  reap();
  for (int dev = 0; dev < device_count(); ++dev) {
    uint64_t sum = 0, tenants = 0;
    for (const ProcessRow& row : file_->process) {
      if (in_use(row))
        sum += row.device[dev].context_bytes.load() + row.device[dev].allocation_bytes.load();
    }
    for (const TenantRow& tenant : file_->tenant) tenants += tenant.device[dev].used.load();
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
