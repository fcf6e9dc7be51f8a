// Takes and gives back the lock; see grow_lock.h.
#include "shim/grow_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "shim/byte_lock.h"

namespace fracgpu {
namespace {

// A holder that runs needs microseconds, but may have to wait for a core, or others for their turn.
constexpr long kBriefPatience_ns = 50'000'000;
constexpr long kLeastPatience_ns = 2'000'000;

}  // namespace

Message GrowLock::stuck_message(const LedgerFile& file) {
  Message message;
  message.format("the ledger {} stayed locked for 5 s; is a process of the tenant stopped?",
                 file.path());
  return message;
}

GrowLock::GrowLock(const LedgerFile& file, Patience patience) {
  fd_ = file.reopen(error_);
  held_ = fd_ >= 0 && take(file, layout::kGrowLock, patience);
}

GrowLock::GrowLock(const LedgerFile& file, Patience patience, uint32_t slot) {
  fd_ = file.reopen(error_);
  has_turn_ = fd_ >= 0 && take(file, layout::growing_offset(slot), Patience::brief);
  held_ = has_turn_ && take(file, layout::kGrowLock, patience);
}

// Polled, not waited for in the kernel: a stopped or frozen holder must not stop us for ever.
bool GrowLock::take(const LedgerFile& file, int64_t byte, Patience patience) {
  struct flock lock = byte_lock(F_WRLCK, byte);
  const long most = patience == Patience::full    ? kPatience_ms * 1'000'000
                    : patience == Patience::brief ? kBriefPatience_ns
                                                  : kLeastPatience_ns;
  long waited = 0, pause = 2'000;
  while (fcntl(fd_, F_OFD_SETLK, &lock) != 0) {
    if (errno != EAGAIN && errno != EACCES && errno != EINTR) {
      error_.format("cannot lock the ledger {}: errno {}", file.path(), errno);
      return false;
    }
    if (waited >= most) {
      stuck_ = true;
      error_ = stuck_message(file);
      return false;
    }
    const timespec interval = {0, pause};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &interval, nullptr);
    waited += pause + 50'000;
    pause = std::min(pause * 2, 500'000L);
  }
  return true;
}

GrowLock::~GrowLock() {
  if (fd_ < 0) return;
  if (held_ || has_turn_) {
    // Unlocked by name: a child forked meanwhile shares the description and would keep the locks.
    struct flock unlock = byte_lock(F_UNLCK, layout::kGrowLock);
    unlock.l_len = 0;  // to the end: what this description holds
    fcntl(fd_, F_OFD_SETLK, &unlock);
  }
  ::close(fd_);
}

}  // namespace fracgpu
