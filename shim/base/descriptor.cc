// Opens files where no program meets them; see descriptor.h.
#include "shim/base/descriptor.h"

#include <errno.h>
#include <poll.h>

namespace fracgpu {
namespace {

constexpr int kStandardStreams = 3;
// Behind what programs give numbers to by hand, and before the 64 for which every process has room:
// more make the kernel wait for all processors before the first of them.
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

}  // namespace

int open_own_at(int folder, const char* path, int flags, mode_t mode) {
  const int error = errno;
  // Standard streams that are closed get a placeholder, so that what is opened next is behind them.
  // To read or write through a placeholder fails as if the stream were closed still.
  int placeholders[kStandardStreams];
  int count = 0;
  for (bool closed = any_standard_stream_is_closed(); closed && count < kStandardStreams;) {
    const auto fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, "/", O_PATH | O_CLOEXEC));
    closed = 0 <= fd && fd < kStandardStreams;
    if (closed) placeholders[count++] = fd;
    if (fd >= kStandardStreams) close_own(fd);
  }
  auto fd = static_cast<int>(syscall(SYS_openat, folder, path, flags | O_CLOEXEC, mode));
  if (fd >= 0 && fd < kFirstOwn) {
    const int moved = fcntl(fd, F_DUPFD_CLOEXEC, kFirstOwn);
    if (moved >= 0 || fd < kStandardStreams) close_own(fd);
    if (moved >= 0 || fd < kStandardStreams) fd = moved;
  }
  while (count > 0) close_own(placeholders[--count]);
  if (fd >= 0) errno = error;
  return fd;
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
