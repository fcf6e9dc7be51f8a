// See trusted_file.h.
#include "tools/cdi/trusted_file.h"

#include <errno.h>
#include <fmt/core.h>
#include <string.h>
#include <sys/stat.h>

#include <filesystem>
#include <stdexcept>

#include "tools/cli/plain_text.h"
#include "tools/cli/replace_file.h"

namespace fracgpu::tools::cdi {
void check_trusted(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) {
    throw std::runtime_error(fmt::format("{} cannot be offered to containers: {}",
                                         clean(path.c_str(), path.size()), strerror(errno)));
  }
  if (S_ISREG(status.st_mode) && status.st_uid == 0 && (status.st_mode & 022) == 0) return;
  throw std::runtime_error(fmt::format(
      "{} cannot be offered to containers: it must be a file that root owns and only root can "
      "write; install it, or name another by --library or --command",
      clean(path.c_str(), path.size())));
}

void install_file(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  replace_file(path, text);
}

}  // namespace fracgpu::tools::cdi
