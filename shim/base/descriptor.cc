// Opens files at numbers that programs do not use; see descriptor.h.
#include "shim/base/descriptor.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>

namespace fracgpu {
namespace {

constexpr int kStandardStreams = 3;
// Above the numbers that programs assign by hand, and below 64, up to which every process has room.
// A larger number makes the kernel wait for all processors before the first such descriptor.
constexpr int kFirstOwn = 48;

// Also true for a stream that can only name a file (O_PATH), which the kernel does not poll.
bool any_standard_stream_is_closed() {
  pollfd streams[kStandardStreams];
  for (int fd = 0; fd < kStandardStreams; ++fd) streams[fd] = {.fd = fd, .events = 0, .revents = 0};
  timespec at_once = {};
  if (syscall(SYS_ppoll, streams, kStandardStreams, &at_once, nullptr, 0) <= 0) return false;
  for (const pollfd& stream : streams) {
    if ((stream.revents & POLLNVAL) != 0) return true;
  }
  return false;
}

// Moves the descriptor that `open()` makes.
template <typename Open>
int open_moved(Open open) {
  const int error = errno;
  // Closed standard streams get a placeholder, so that the next descriptor is behind them. Reading
  // or writing through a placeholder fails as if the stream were still closed.
  int placeholders[kStandardStreams];
  int count = 0;
  for (bool closed = any_standard_stream_is_closed(); closed && count < kStandardStreams;) {
    const auto fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, "/", O_PATH | O_CLOEXEC));
    closed = 0 <= fd && fd < kStandardStreams;
    if (closed) placeholders[count++] = fd;
    if (fd >= kStandardStreams) close_own(fd);
  }
  auto fd = static_cast<int>(open());
  if (fd >= 0 && fd < kFirstOwn) {
    const int moved = fcntl(fd, F_DUPFD_CLOEXEC, kFirstOwn);
    if (moved >= 0 || fd < kStandardStreams) close_own(fd);
    if (moved >= 0 || fd < kStandardStreams) fd = moved;
  }
  while (count > 0) close_own(placeholders[--count]);
  if (fd >= 0) errno = error;
  return fd;
}

}  // namespace

int open_own_at(int folder, const char* path, int flags, mode_t mode) {
  return open_moved([&] { return syscall(SYS_openat, folder, path, flags | O_CLOEXEC, mode); });
}

int open_own_epoll() {
  return open_moved([] { return syscall(SYS_epoll_create1, EPOLL_CLOEXEC); });
}

bool no_descriptor_is_free() {
  const int error = errno;
  const int fd = open_own("/", O_PATH);
  const bool none = fd < 0 && (errno == EMFILE || errno == ENFILE);
  if (fd >= 0) close_own(fd);
  errno = error;
  return none;
}

void close_own(int fd) {
  const int error = errno;
  syscall(SYS_close, fd);
  errno = error;
}

}  // namespace fracgpu
