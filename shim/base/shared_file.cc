// Writes an unnamed temporary and links it into place; see shared_file.h.
#include "shim/base/shared_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fracgpu {
namespace {

int fill(int fd, size_t size, const void* header, size_t header_size) {
  if (fchmod(fd, kSharedFileMode) != 0) return errno;  // the umask must not lock out other users
  if (const int failed = posix_fallocate(fd, 0, static_cast<off_t>(size)); failed != 0) {
    return failed;
  }
  const ssize_t written = pwrite(fd, header, header_size, 0);
  return written == static_cast<ssize_t>(header_size) ? 0 : written < 0 ? errno : ENOSPC;
}

}  // namespace

int make_shared_file(const char* path, size_t size, const void* header, size_t header_size) {
  char temporary[160] = "";
  int fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, kSharedFileMode);
  if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
    snprintf(temporary, sizeof temporary, "%s.%d.new", path, getpid());
    unlink(temporary);
    fd = open(temporary, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, kSharedFileMode);
  }
  if (fd < 0) return errno;

  int code = fill(fd, size, header, header_size);
  if (code == 0) {
    char source[64];
    snprintf(source, sizeof source, "/proc/self/fd/%d", fd);
    const bool linked = temporary[0] != '\0'
                            ? link(temporary, path) == 0
                            : linkat(AT_FDCWD, source, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0;
    if (!linked) code = errno;
  }
  if (temporary[0] != '\0') unlink(temporary);
  ::close(fd);
  return code;
}

}  // namespace fracgpu
