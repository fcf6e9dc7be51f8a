#include "tools/report/page_file.h"

#include <fmt/core.h>
#include <strings.h>
#include <sys/stat.h>

#include <stdexcept>

#include "shim/base/text.h"
#include "tools/cli/judged_file.h"

namespace fracgpu::tools::report {
namespace {

constexpr char kBeginning[] = "<!doctype html>";

}  // namespace

void judge_page_file(const std::string& path) {
  struct stat status;
  if (lstat(path.c_str(), &status) != 0) return;  // the write will report what is wrong
  const std::string name = fracgpu::quoted(path).c_str();
  if (!S_ISREG(status.st_mode)) {
    throw std::runtime_error(
        fmt::format("{} is there and is no regular file: name another one for --html", name));
  }
  const std::string begins = read_judged(path, sizeof kBeginning - 1, Links::refused);
  if (status.st_size != 0 && strcasecmp(begins.c_str(), kBeginning) != 0) {
    throw std::runtime_error(fmt::format(
        "{} is there and is no page: name another file for --html, or remove it", name));
  }
}

}  // namespace fracgpu::tools::report
