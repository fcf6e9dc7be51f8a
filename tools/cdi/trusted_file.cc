// See trusted_file.h.
#include "tools/cdi/trusted_file.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>

#include "tools/descriptor.h"

namespace fracgpu::tools::cdi {
namespace {

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw std::runtime_error(fmt::format("{} {}: {}", path, what, strerror(errno)));
}

}  // namespace

void check_trusted(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) fail(path, "cannot be offered to containers");
  if (S_ISREG(status.st_mode) && status.st_uid == 0 && (status.st_mode & 022) == 0) return;
  throw std::runtime_error(fmt::format(
      "{} cannot be offered to containers: it must be a file that root owns and only root can "
      "write; install it, or name another by --library or --command",
      path));
}

void install_file(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  const std::string fresh = fmt::format("{}.{}", path, getpid());
  const Descriptor file(open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) fail(path, "cannot be written");
  const bool written =
      write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      fchmod(file.get(), 0644) == 0 && fsync(file.get()) == 0;
  if (written && rename(fresh.c_str(), path.c_str()) == 0) return;
  const int code = errno;
  unlink(fresh.c_str());
  errno = code;
  fail(path, "cannot be written");
}

}  // namespace fracgpu::tools::cdi
