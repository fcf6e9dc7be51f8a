// Takes and gives back the lock; see grow_lock.h.
#include "shim/ledger/grow_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "shim/base/byte_lock.h"
#include "shim/base/clock.h"
#include "shim/base/descriptor.h"

namespace fracgpu {
namespace {

// A running holder needs microseconds, but may have to wait for a core: of 35,700 waits of 24
// processes on two cores, 6 were longer than 2 ms, and the longest was 47 ms. A caller pays the
// brief timeout once, when a holder stops. Each later allocation beyond the lease pays the least
// timeout, until the lock moves again: 1.2 ms with this value, 2.9 ms with 2 ms.
constexpr long kBriefTimeout_ns = 50'000'000;
constexpr long kLeastTimeout_ns = 500'000;

}  // namespace

Message GrowLock::stuck_message(const LedgerFile& file) {
  Message message;
  message.format("the ledger {} stayed locked for 5 s; is a process of the tenant stopped?",
                 file.path());
  return message;
}

GrowLock::GrowLock(const LedgerFile& file, LockTimeout timeout) {
  acquire(file, timeout, nullptr);
}

GrowLock::GrowLock(const LedgerFile& file, LockTimeout timeout, uint32_t slot) {
  const int64_t turn = layout::growing_offset(slot);
  acquire(file, timeout, &turn);
}

void GrowLock::acquire(const LedgerFile& file, LockTimeout timeout, const int64_t* turn) {
  Wait for_turn, for_lock;
  for (Try last = Try::interrupted; last == Try::interrupted;) {
    fd_ = file.reopen(error_);
    if (fd_ < 0) {
      // Threads of this process that have no turn may each be refused because of the other thread's
      // attempt.
      stuck_ = has_turn_ = errno == EMFILE || errno == ENFILE;
      return;
    }
    last = turn == nullptr ? Try::locked : take(file, *turn, LockTimeout::brief, for_turn);
    has_turn_ = turn != nullptr && last == Try::locked;
    if (last == Try::locked) last = take(file, layout::kGrowLock, timeout, for_lock);
    held_ = last == Try::locked;
    if (last != Try::interrupted) return;
    close();
    // The wait includes the time that a fork takes: the fork's own handlers may wait for this
    // thread.
    const uint64_t before_ms = coarse_now_ms();
    section_.interrupt();
    const long waited = static_cast<long>(coarse_now_ms() - before_ms) * 1'000'000 + 50'000;
    for_turn.waited += waited;
    for_lock.waited += waited;
  }
}

// Polls instead of waiting in the kernel: a stopped or frozen holder must not block the caller for
// ever.
GrowLock::Try GrowLock::take(const LedgerFile& file, int64_t byte, LockTimeout timeout,
                             Wait& wait) {
  struct flock lock = byte_lock(F_WRLCK, byte);
  const long most = timeout == LockTimeout::full    ? kLockTimeout_ms * 1'000'000
                    : timeout == LockTimeout::brief ? kBriefTimeout_ns
                    : timeout == LockTimeout::least ? kLeastTimeout_ns
                                                    : 0;
  while (fcntl(fd_, F_OFD_SETLK, &lock) != 0) {
    if (errno != EAGAIN && errno != EACCES && errno != EINTR) {
      error_.format("cannot lock the ledger {}: errno {}", file.path(), errno);
      return Try::failed;
    }
    if (wait.waited >= most) {
      stuck_ = true;
      error_ = stuck_message(file);
      return Try::failed;
    }
    if (Unforked::is_awaited()) return Try::interrupted;
    sleep_ns(wait.pause);
    wait.waited += wait.pause + 50'000;
    wait.pause = std::min(wait.pause * 2, 500'000L);
  }
  return Try::locked;
}

void GrowLock::close() {
  if (fd_ < 0) return;
  if (held_ || has_turn_) {
    // An explicit unlock: a child of raw clone() shares the description and would keep the locks.
    struct flock unlock = byte_lock(F_UNLCK, layout::kGrowLock);
    unlock.l_len = 0;  // to the end: all that this description holds
    fcntl(fd_, F_OFD_SETLK, &unlock);
  }
  close_own(fd_);
  fd_ = -1;
  held_ = has_turn_ = false;
}

GrowLock::~GrowLock() {
  close();
}

}  // namespace fracgpu
