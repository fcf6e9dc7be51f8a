// Reads the ceiling file; see ceiling.h.
#include "shim/config/ceiling.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>

namespace fracgpu {
namespace {

// The items of the ceiling file joined by commas: comments and blank lines left out.
Text<4096> items_of(std::string_view file) {
  Text<4096> items;
  while (!file.empty()) {
    const size_t newline = std::min(file.find('\n'), file.size());
    std::string_view line = file.substr(0, newline);
    file.remove_prefix(std::min(newline + 1, file.size()));
    line = line.substr(0, line.find('#'));
    while (!line.empty() && (line.back() == ' ' || line.back() == '\t' || line.back() == '\r')) {
      line.remove_suffix(1);
    }
    if (line.find_first_not_of(" \t") == line.npos) continue;
    items.append("{}{}", items.empty() ? "" : ",", line);
  }
  return items;
}

// The kernel shows an owner so that this user namespace has no number for
// (/proc/sys/kernel/overflowuid).
constexpr uint32_t kOutsider = 65534;

// Also where it belongs to somebody outside of this user namespace, as all files of the host do in
// a container of an engine without root, provided that it was put there read-only.
bool only_root_can_write(int fd, const struct statx& status) {
  if ((status.stx_mode & 022) != 0) return false;
  if (status.stx_uid == 0) return true;
  struct statvfs mount;
  return status.stx_uid == kOutsider && fstatvfs(fd, &mount) == 0 &&
         (mount.f_flag & ST_RDONLY) != 0;
}

}  // namespace

bool read_ceiling(const char* path, Limits& ceiling, Message& error) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return true;
    error.format("{} cannot be read: errno {}", path, errno);
    return false;
  }
  struct statx status;
  const bool trusted = statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &status) == 0 &&
                       S_ISREG(status.stx_mode) && only_root_can_write(fd, status);
  char bytes[4096];
  const ssize_t size = ::read(fd, bytes, sizeof bytes);
  close(fd);
  if (!trusted) {
    error.format("{} is not trusted: it must be a file that root owns and only root can write",
                 path);
    return false;
  }
  if (size < 0 || size == static_cast<ssize_t>(sizeof bytes)) {
    error.format("{} cannot be read, or is longer than {} bytes", path, sizeof bytes - 1);
    return false;
  }
  Message why;
  if (ceiling.parse(items_of({bytes, static_cast<size_t>(size)}).view(), why)) return true;
  error.format("{}: {}", path, why.view());
  return false;
}

}  // namespace fracgpu
