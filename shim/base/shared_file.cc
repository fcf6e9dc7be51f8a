// Writes a temporary file and links it into place. The file has no name, or one of its own if the
// file system has no unnamed files; see shared_file.h.
#include "shim/base/shared_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <string_view>

#include "shim/base/descriptor.h"
#include "shim/base/held_signals.h"
#include "shim/base/text.h"

namespace fracgpu {
namespace {

using Name = Text<kLongestSharedPath + 32>;  // with the suffix of a temporary's name

// The folder of `path`: an unnamed file can only get a name on its own file system.
Name folder_of(std::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return Name(".");
  return Name(path.substr(0, slash == 0 ? 1 : slash));
}

int fill(int fd, SharedFileSize size, const void* header, size_t header_size) {
  if (fchmod(fd, kSharedFileMode) != 0) return errno;  // the umask must not lock out other users
  if (ftruncate(fd, static_cast<off_t>(size.whole)) != 0) return errno;
  if (const int failed = back_shared_file(fd, 0, size.backed); failed != 0) return failed;
  const ssize_t written = write_own_at(fd, header, header_size, 0);
  return written == static_cast<ssize_t>(header_size) ? 0 : written < 0 ? errno : ENOSPC;
}

// A new file beside `path`, with an unpredictable name: users share /dev/shm, and so do containers
// that may use the same PIDs. -1 with errno.
int make_named(const char* path, Name& name) {
  for (int attempt = 0; attempt < 4; ++attempt) {
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number) return -1;
    name.format("{}.{:016x}.new", path, number);
    const int fd = open_own(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW, kSharedFileMode);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  errno = EAGAIN;  // not EEXIST, which would mean that `path` exists
  return -1;
}

}  // namespace

int make_shared_file(const char* path, SharedFileSize size, const void* header,
                     size_t header_size) {
  if (std::string_view(path).size() > kLongestSharedPath) return ENAMETOOLONG;
  Name temporary;  // empty: the file has no name yet
  int fd = open_own(folder_of(path).c_str(), O_TMPFILE | O_RDWR, kSharedFileMode);
  if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
    fd = make_named(path, temporary);
  }
  if (fd < 0) return errno;

  const HeldSignals held;  // EFBIG above RLIMIT_FSIZE comes with SIGXFSZ
  int code = fill(fd, size, header, header_size);
  if (code == 0) {
    Text<64> source;
    source.format("/proc/self/fd/{}", fd);
    const bool linked = !temporary.empty() ? link(temporary.c_str(), path) == 0
                                           : linkat(AT_FDCWD, source.c_str(), AT_FDCWD, path,
                                                    AT_SYMLINK_FOLLOW) == 0;
    if (!linked) code = errno;
  }
  if (!temporary.empty()) unlink(temporary.c_str());
  close_own(fd);
  return code;
}

int back_shared_file(int fd, size_t offset, size_t size) {
  const HeldSignals held;  // a pending signal would interrupt the call before it has done anything
  int code = 0;
  do {
    code = posix_fallocate(fd, static_cast<off_t>(offset), static_cast<off_t>(size));
  } while (code == EINTR);
  return code;
}

}  // namespace fracgpu
