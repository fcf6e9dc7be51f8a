// Giving back the memory of dead processes, and shared memory that nobody holds any more. What was
// found dead is subtracted from the totals; if an owner died in the middle of an update, or the
// last reaper in its work, everything is counted again (recount.cc).
#include "sim/node/reap.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <vector>

#include "sim/node/marks.h"

namespace sim {

namespace {

// A child shares the open files of the moment of its fork, and their locks with them: it would hold
// what another thread was about to close. So no fork happens while such a descriptor is open. Plain
// atomics, because the child must be able to begin anew.
std::atomic<int> open_descriptors{0};
std::atomic<bool> forking{false};
// One thread may have several open, and must not wait for a fork that waits for it.
thread_local int open_here __attribute__((tls_model("initial-exec"))) = 0;

void enter_gate() {
  if (open_here++ > 0) return;
  for (;;) {
    open_descriptors.fetch_add(1);
    if (!forking.load()) return;
    open_descriptors.fetch_sub(1);
    while (forking.load()) sched_yield();
  }
}

void leave_gate() {
  if (--open_here == 0) open_descriptors.fetch_sub(1);
}

[[gnu::constructor]] void guard_forks() {
  pthread_atfork(
      [] {
        while (forking.exchange(true)) sched_yield();
        while (open_descriptors.load() > (open_here > 0 ? 1 : 0)) sched_yield();
      },
      [] { forking.store(false); },
      [] {
        open_descriptors.store(open_here > 0 ? 1 : 0);
        forking.store(false);
      });
}

}  // namespace

NodeDescriptor::NodeDescriptor(const std::string& path) {
  enter_gate();
  fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
}

NodeDescriptor::~NodeDescriptor() {
  if (fd_ >= 0) ::close(fd_);
  leave_gate();
}

bool NodeDescriptor::lock(int64_t offset, bool wait, bool shared) const {
  struct flock range {};
  range.l_type = shared ? F_RDLCK : F_WRLCK;
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

// Dead, and its memory due back.
bool due(const NodeDescriptor& file, const Header& header, ProcessRow& row, int index) {
  if (file.held_elsewhere(kRowLockBase + index)) return false;
  if (row.linger_ns == 0 || (header.kfd_quirks & kUnlistsLate) != 0) return true;
  const uint64_t now = monotonic_ns();
  uint64_t noticed = 0;
  if (row.dead_since.compare_exchange_strong(noticed, now)) noticed = now;
  return now - noticed >= row.linger_ns;
}

// Of a process that is buried now, for KFD to tell a while longer.
void keep_listed(NodeFile& file, const ProcessRow& row) {
  if ((file.header.kfd_quirks & kUnlistsLate) == 0 || row.vendor != Vendor::kAmd) return;
  const uint64_t now = monotonic_ns();
  for (StaleRow& stale : file.stale) {
    if (stale.until_ns.load() > now) continue;
    for (int dev = 0; dev < kMaxDevices; ++dev) {
      const ProcessDevice& use = row.device[dev];
      stale.bytes[dev].store(use.context_bytes.load() + use.allocation_bytes.load());
    }
    stale.pid.store(row.pid);
    stale.until_ns.store(now + row.linger_ns);
    return;
  }
}

bool contains(const std::vector<int>& list, int number) {
  return std::find(list.begin(), list.end(), number) != list.end();
}

}  // namespace

struct Node::Dead {
  std::vector<int> rows, objects;
};

// Does nobody hold the object? With `take`, its lock stays with this descriptor until that is
// closed, so that nobody can come to hold it any more.
bool Node::unheld(const NodeDescriptor& file, int index, bool take) {
  const ObjectRow& object = file_->object[index];
  if (object.state.load(std::memory_order_acquire) == static_cast<uint32_t>(ObjectState::kFree))
    return false;
  // What a dead process made lingers as long as the rest of its memory.
  const ProcessRow& creator = file_->process[object.creator_row];
  if (in_use(creator) && creator.serial == object.creator && creator.dead_since.load() != 0)
    return false;
  return take ? file.lock(kObjectLockBase + index, false)
              : !file.held_elsewhere(kObjectLockBase + index);
}

bool Node::any_dead(int tenant, int except_row) {
  const uint32_t others = except_row >= 0 ? 1 : 0;
  const bool objects = file_->header.objects.load(std::memory_order_acquire) != 0;
  if (!objects && file_->header.live_processes.load(std::memory_order_acquire) <= others)
    return false;
  NodeDescriptor file(path_);
  if (file.fd() < 0) return false;
  for (int i = 0; i < kMaxProcesses; ++i) {
    ProcessRow& row = file_->process[i];
    if (i == except_row || !in_use(row)) continue;
    if (tenant >= 0 && row.tenant != static_cast<uint32_t>(tenant)) continue;
    if (due(file, file_->header, row, i)) return true;
  }
  for (int i = 0; objects && i < kMaxObjects; ++i) {
    if (tenant >= 0 && file_->object[i].tenant != static_cast<uint32_t>(tenant)) continue;
    if (unheld(file, i, false)) return true;
  }
  return false;
}

// Adds what is newly found dead; true if there was any.
bool Node::find_dead(const NodeDescriptor& file, int except_row, Dead* dead) {
  const size_t before = dead->rows.size() + dead->objects.size();
  for (int i = 0; i < kMaxProcesses; ++i) {
    ProcessRow& row = file_->process[i];
    if (i != except_row && in_use(row) && !contains(dead->rows, i) &&
        due(file, file_->header, row, i))
      dead->rows.push_back(i);
  }
  for (int i = 0; file_->header.objects.load() != 0 && i < kMaxObjects; ++i) {
    if (!contains(dead->objects, i) && unheld(file, i, true)) dead->objects.push_back(i);
  }
  return dead->rows.size() + dead->objects.size() != before;
}

int Node::reap(int tenant, int except_row) {
  Header& header = file_->header;
  // A reaper that started during `any_dead` may hold the locks of dead objects, which then look
  // held, and may not have given their memory back yet.
  const auto is_reaping = [&] {
    return (header.epoch.load() & 1) != 0 || header.freeze.load() != 0;
  };
  if (!is_reaping() && !any_dead(tenant, except_row) && !is_reaping()) return 0;
  ReapLock lock(*this);
  if (!lock.held()) return 0;
  NodeDescriptor file(path_);
  if (file.fd() < 0) return 0;

  // Now nobody else reaps: an odd epoch or a freeze can only be a dead reaper's.
  uint64_t epoch = header.epoch.load();
  bool again = (epoch & 1) != 0 || header.freeze.load() != 0;
  if ((epoch & 1) == 0) header.epoch.store(++epoch);
  // The last look finds everybody else alive, after every peak that one of the dead can have
  // reached.
  Dead dead;
  while (find_dead(file, except_row, &dead)) {
  }

  struct Loss {
    uint64_t bytes = 0;
    int row = -1;  // of the only one that died with anything
    int count = 0;
  };
  std::map<std::pair<uint32_t, int>, Loss> losses;  // by tenant and device
  for (const int i : dead.rows) {
    const ProcessRow& row = file_->process[i];
    again = again || row.busy.load() != 0;
    for (int dev = 0; dev < device_count(); ++dev) {
      const ProcessDevice& use = row.device[dev];
      const uint64_t bytes = use.context_bytes.load() + use.allocation_bytes.load();
      if (bytes == 0) continue;
      Loss& loss = losses[{row.tenant, dev}];
      loss.bytes += bytes;
      loss.row = loss.count++ == 0 ? i : -1;
    }
  }
  for (const int i : dead.objects) {
    const ObjectRow& object = file_->object[i];
    if (object.state.load() != static_cast<uint32_t>(ObjectState::kLive) || object.device < 0)
      continue;
    Loss& loss = losses[{object.tenant, object.device}];
    loss.bytes += object.bytes;
    loss.row = -1;
    ++loss.count;
  }
  for (const auto& [where, loss] : losses) {
    bury(file_->tenant[where.first].device[where.second], loss.bytes, loss.row);
    if (!again) file_->device[where.second].used.fetch_sub(loss.bytes);
  }

  for (const int i : dead.rows) {
    ProcessRow& row = file_->process[i];
    keep_listed(*file_, row);
    for (ProcessDevice& use : row.device) {
      use.context_bytes.store(0);
      use.allocation_bytes.store(0);
      use.contexts.store(0);
      use.imported.store(0);
      use.imported_own.store(0);
      use.host_freed.store(0);
      use.managed_bytes.store(0);
      use.pinned_bytes.store(0);
    }
    row.busy.store(0);
    row.state.store(static_cast<uint32_t>(RowState::kFree), std::memory_order_release);
    header.live_processes.fetch_sub(1);
  }
  for (const int i : dead.objects) {
    file_->object[i].state.store(static_cast<uint32_t>(ObjectState::kFree),
                                 std::memory_order_release);
    header.objects.fetch_sub(1);
  }
  if (again) recount();
  header.epoch.store(epoch + 1);
  return static_cast<int>(dead.rows.size());
}

}  // namespace sim
