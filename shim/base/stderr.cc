// Writes to the host's stderr without harm; see stderr.h.
#include "shim/base/stderr.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "shim/base/descriptor.h"
#include "shim/base/held_signals.h"

namespace fracgpu {
namespace {

// The file of descriptor 2 at the start; 0 and 0 if it was closed.
struct Identity {
  std::atomic<uint64_t> device{0}, inode{0};
};
constinit Identity at_start;
constinit std::atomic<bool> remembered{false};

// The system call itself: the C library's function is newer than glibc 2.31, and a sandbox may
// forbid statx.
bool status_of_stderr(struct stat& now) {
  return syscall(SYS_fstat, STDERR_FILENO, &now) == 0;
}

bool is_that_of_the_start(const struct stat& now) {
  return now.st_dev == at_start.device.load(std::memory_order_relaxed) &&
         now.st_ino == at_start.inode.load(std::memory_order_relaxed);
}

// Other processes share the flags of the host's own descriptor. A description of our own does not
// block. There is none if the file belongs to another user, or without /proc.
int reopen_without_blocking() {
  return open_own("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY);
}

// Another process may fill the pipe between the poll and the write. There is no better way.
bool takes_a_line() {
  pollfd stderr_now = {.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  constexpr timespec kNow = {};
  return syscall(SYS_ppoll, &stderr_now, 1, &kNow, nullptr, 0) == 1 &&
         (stderr_now.revents & POLLOUT) != 0;
}

}  // namespace

void remember_stderr() {
  struct stat now = {};
  if (remembered.load(std::memory_order_acquire)) return;
  if (status_of_stderr(now)) {
    at_start.device.store(now.st_dev, std::memory_order_relaxed);
    at_start.inode.store(now.st_ino, std::memory_order_relaxed);
  }
  remembered.store(true, std::memory_order_release);
}

void write_to_stderr(const char* bytes, size_t size) {
  remember_stderr();
  struct stat now = {};
  if (!status_of_stderr(now)) return;
  const bool terminal = S_ISCHR(now.st_mode) && isatty(STDERR_FILENO) != 0;
  if (!terminal && !is_that_of_the_start(now)) return;
  const HeldSignals held;
  [[maybe_unused]] ssize_t written = 0;
  if (S_ISSOCK(now.st_mode)) {
    written =
        syscall(SYS_sendto, STDERR_FILENO, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0);
  } else if (terminal || S_ISFIFO(now.st_mode)) {
    const int own = reopen_without_blocking();
    if (own >= 0) {
      written = write_own(own, bytes, size);
      close_own(own);
    } else if (errno != ENXIO && takes_a_line()) {  // ENXIO: no process reads the pipe
      written = write_own(STDERR_FILENO, bytes, size);
    }
  } else {
    written = write_own(STDERR_FILENO, bytes, size);
  }
}

}  // namespace fracgpu
