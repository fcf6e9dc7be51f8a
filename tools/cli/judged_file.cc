// See judged_file.h.
#include "tools/cli/judged_file.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <string.h>
#include <sys/stat.h>

#include <algorithm>
#include <stdexcept>

#include "shim/base/text.h"
#include "tools/cli/plain_text.h"

namespace fracgpu::tools {
namespace {

const char* kind_of(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFLNK:
      return "a symbolic link";
    case S_IFDIR:
      return "a folder";
    case S_IFIFO:
      return "a FIFO";
    case S_IFSOCK:
      return "a socket";
    default:
      return "a device";
  }
}

int open_plain(const std::string& path, int access, Links links) {
  const int flags = O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (links == Links::refused ? O_NOFOLLOW : 0);
  // Checked before opening: opening a device can have effects.
  struct stat status = {};
  const bool looked = links == Links::refused ? lstat(path.c_str(), &status) == 0
                                              : stat(path.c_str(), &status) == 0;
  if (!looked || !S_ISREG(status.st_mode)) {
    if (looked) errno = EINVAL;
    return -1;
  }
  const int fd = open(path.c_str(), access | flags);
  if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) return fd;
  if (fd < 0) return -1;
  close(fd);  // replaced meanwhile
  errno = EINVAL;
  return -1;
}

}  // namespace

Descriptor open_judged(const std::string& path, int access, Links links) {
  const int fd = open_plain(path, access, links);
  if (fd >= 0) return Descriptor(fd);
  const int error = errno;
  struct stat status = {};
  const auto name = fracgpu::quoted(path);
  if (lstat(path.c_str(), &status) != 0) {
    throw std::runtime_error(fmt::format("cannot open {}: {}", name.view(), strerror(error)));
  }
  const std::string owner = user_name(status.st_uid);
  if (!S_ISREG(status.st_mode) && (links == Links::refused || !S_ISLNK(status.st_mode))) {
    throw std::runtime_error(fmt::format("{} is {} of user {}, and not a file; {}", name.view(),
                                         kind_of(status.st_mode), owner,
                                         access == O_RDONLY ? "name a file" : "remove it"));
  }
  throw std::runtime_error(fmt::format("cannot open {}, which user {} made with mode {:04o}: {}",
                                       name.view(), owner, status.st_mode & 07777U,
                                       strerror(error)));
}

std::string read_judged(const std::string& path, size_t most, Links links) {
  const Descriptor file(open_plain(path, O_RDONLY, links));
  std::string text;
  char bytes[65536];
  while (file.get() >= 0 && text.size() < most) {
    const ssize_t size = read(file.get(), bytes, std::min(sizeof bytes, most - text.size()));
    if (size <= 0) break;
    text.append(bytes, static_cast<size_t>(size));
  }
  return text;
}

}  // namespace fracgpu::tools
