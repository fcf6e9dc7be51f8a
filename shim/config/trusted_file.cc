// Finds, checks and reads root's files; see trusted_file.h.
#include "shim/config/trusted_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdint>

#include "shim/base/descriptor.h"

namespace fracgpu {
namespace {

// The owner that the kernel shows if this user namespace has no number for the real one
// (/proc/sys/kernel/overflowuid).
constexpr uint32_t kOutsider = 65534;

// Also true if the owner is outside of this user namespace and the mount is read-only. In a
// container of a rootless engine, all files of the host have such an owner.
bool only_root_can_write(int fd, const struct statx& status) {
  if ((status.stx_mode & 022) != 0) return false;
  if (status.stx_uid == 0) return true;
  struct statvfs mount;
  return status.stx_uid == kOutsider && fstatvfs(fd, &mount) == 0 &&
         (mount.f_flag & ST_RDONLY) != 0;
}

// The path up to its last slash. Does no formatting, because every program runs this at its start.
struct Folder {
  explicit Folder(const char* path) {
    const size_t size = static_cast<size_t>(strrchr(path, '/') - path);
    if (size < sizeof name) memcpy(name, path, size);
  }
  char name[512] = {};
};

// More links than a ConfigMap's file has.
constexpr int kMostLinks = 8;

// Opens a path below a folder, links included, as openat2 does with RESOLVE_BENEATH, which kernels
// have from 5.6 on. -1 with errno; EXDEV if a link leads out of the folder.
int open_below(int folder, std::string_view path, int flags, int links) {
  const size_t slash = path.find('/');
  const Text<256> name(path.substr(0, slash));
  if (name.view() == ".." || name.empty()) {
    errno = EXDEV;
    return -1;
  }
  const bool is_last = slash == path.npos;
  char target[256];
  const ssize_t size = readlinkat(folder, name.c_str(), target, sizeof target);
  int fd = -1;
  if (size == static_cast<ssize_t>(sizeof target) || (size >= 0 && links == kMostLinks)) {
    errno = ELOOP;
  } else if (size >= 0) {
    fd = open_below(folder, {target, static_cast<size_t>(size)},
                    is_last ? flags : O_PATH | O_DIRECTORY, links + 1);
  } else {
    fd = open_own_at(folder, name.c_str(),
                     (is_last ? flags : O_PATH | O_DIRECTORY) | O_NOFOLLOW | O_NONBLOCK);
  }
  if (is_last || fd < 0) return fd;
  const int last = open_below(fd, path.substr(slash + 1), flags, links);
  close_own(fd);
  return last;
}

int open_inside(const char* path) {
  const int folder = open_own(Folder(path).name, O_PATH | O_DIRECTORY);
  if (folder < 0) return -1;
  const int fd = open_below(folder, strrchr(path, '/') + 1, O_RDONLY, 0);
  close_own(folder);
  return fd;
}

void describe(int code, Message& error) {
  switch (code) {
    case ENOENT:
      return error.append("it is, or its folder is, a link that leads nowhere");
    case EXDEV:
      return error.append(
          "it is a link that leads out of its folder; put the file itself there, or a link to one "
          "in the same folder");
    case ELOOP:
      return error.append("it is a link of too many links");
    case EACCES:
      return error.append(
          "permission denied; everybody must be able to read it and to search its folder");
    case ENOTDIR:
      return error.append("its folder is not a folder");
    default:
      return error.append("errno {}", code);
  }
}

}  // namespace

bool trusted_file_is_there(const char* path) {
  const Folder folder(path);
  char target[1];
  // Reads it as a link, because its target may be missing.
  const bool folder_is_link = readlink(folder.name, target, sizeof target) >= 0;
  if (!folder_is_link && errno == ENOENT) return false;
  if (readlink(path, target, sizeof target) >= 0 || errno != ENOENT) return true;
  return folder_is_link && access(folder.name, F_OK) != 0;
}

bool read_trusted_file(const char* path, TrustedText& text, Message& error) {
  int fd = open_inside(path);
  // Tries once more, since a ConfigMap's links may be changing just now.
  if (fd < 0 && errno == ENOENT) fd = open_inside(path);
  const int code = errno;
  if (fd < 0) {
    error.format("{} cannot be read: ", path);
    describe(code, error);
    return false;
  }
  struct statx status;
  const bool trusted = statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &status) == 0 &&
                       S_ISREG(status.stx_mode) && only_root_can_write(fd, status);
  const ssize_t size = read_own(fd, text.bytes, sizeof text.bytes);
  close_own(fd);
  if (!trusted) {
    error.format("{} is not trusted: it must be a file that root owns and only root can write",
                 path);
    return false;
  }
  if (size < 0 || size == static_cast<ssize_t>(sizeof text.bytes)) {
    error.format("{} cannot be read, or is longer than {} bytes", path, sizeof text.bytes - 1);
    return false;
  }
  text.size = static_cast<size_t>(size);
  return true;
}

}  // namespace fracgpu
