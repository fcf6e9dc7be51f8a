// Opens files where no program meets them; see descriptor.h.
#include "shim/base/descriptor.h"

#include <errno.h>

namespace fracgpu {
namespace {

constexpr int kStandardStreams = 3;
// Behind what programs give numbers to by hand, and before the 64 for which every process has room:
// more make the kernel wait for all processors before the first of them.
constexpr int kFirstOwn = 48;

}  // namespace

int open_own_at(int folder, const char* path, int flags, mode_t mode) {
  // In the place of standard streams that are closed, so that what is opened next is behind them.
  // To read or write through such a descriptor fails as if it were closed still.
  const int error = errno;
  int in_place[kStandardStreams];
  int count = 0;
  while (count < kStandardStreams) {
    bool any_closed = false;
    for (int fd = 0; fd < kStandardStreams; ++fd) any_closed = any_closed || fcntl(fd, F_GETFD) < 0;
    if (!any_closed) break;
    const auto fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, "/", O_PATH | O_CLOEXEC));
    if (fd < 0) break;
    in_place[count++] = fd;
  }
  auto fd = static_cast<int>(syscall(SYS_openat, folder, path, flags | O_CLOEXEC, mode));
  if (fd >= 0 && fd < kFirstOwn) {
    const int moved = fcntl(fd, F_DUPFD_CLOEXEC, kFirstOwn);
    if (moved >= 0 || fd < kStandardStreams) close_own(fd);
    if (moved >= 0 || fd < kStandardStreams) fd = moved;
  }
  while (count > 0) close_own(in_place[--count]);
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
