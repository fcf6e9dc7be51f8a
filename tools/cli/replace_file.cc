// See replace_file.h.
#include "tools/cli/replace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stdexcept>

#include "shim/base/held_signals.h"
#include "shim/base/text.h"
#include "tools/cli/descriptor.h"

namespace fracgpu::tools {
namespace {

[[noreturn]] void fail(const char* what, const std::string& path, int error) {
  throw std::runtime_error(
      fmt::format("cannot {} {}: {}", what, fracgpu::quoted(path).view(), strerror(error)));
}

int write_all(int fd, const std::string& text) {
  const HeldSignals held;  // otherwise a write above RLIMIT_FSIZE would end the command
  for (size_t at = 0; at < text.size();) {
    const ssize_t size = write(fd, text.data() + at, text.size() - at);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return size == 0 ? ENOSPC : errno;
    at += static_cast<size_t>(size);
  }
  // Other users read the file, whatever the umask is.
  return fchmod(fd, 0644) == 0 && fsync(fd) == 0 ? 0 : errno;
}

}  // namespace

void replace_file(const std::string& path, const std::string& text) {
  replace_file(path, text, fmt::format("{}.{}.new", path, getpid()));
}

void replace_file(const std::string& path, const std::string& text, const std::string& fresh) {
  const Descriptor file(
      open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (file.get() < 0) fail("make", fresh, errno);
  const char* what = "write";
  int error = write_all(file.get(), text);
  if (error == 0 && rename(fresh.c_str(), path.c_str()) != 0) {
    what = "replace";
    error = errno;
  }
  if (error == 0) return;
  unlink(fresh.c_str());
  fail(what, path, error);
}

}  // namespace fracgpu::tools
