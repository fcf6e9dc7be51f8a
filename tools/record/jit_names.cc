// See jit_names.h.
#include "tools/record/jit_names.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <iterator>

#include "tools/cli/descriptor.h"

namespace fracgpu::tools {

JitNames::JitNames(uint32_t pid, uint32_t own_pid)
    : own_path_(fmt::format("/tmp/perf-{}.map", own_pid)),
      path_(fmt::format("/proc/{}/root", pid) + own_path_) {}

const JitNames::Function* JitNames::find(uint64_t address) const {
  const auto behind = functions_.upper_bound(address);
  if (behind == functions_.begin()) return nullptr;
  const auto& [start, function] = *std::prev(behind);
  return address - start < function.size ? &function : nullptr;
}

std::string JitNames::name_at(uint64_t address) {
  const Function* function = find(address);
  if (function == nullptr) {
    read_more();
    function = find(address);
  }
  return function != nullptr ? function->name : "";
}

// Parses lines of "start size name", with both numbers hexadecimal. Any user may have put the file
// there. So other lines are skipped, and the read size is limited to what programs write.
void JitNames::read_more() {
  constexpr uint64_t kMost = 64u << 20;
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  Descriptor file(open(path_.c_str(), kFlags));
  // The folders of an ended process are no longer known, so this tries our own.
  if (file.get() < 0) file = Descriptor(open(own_path_.c_str(), kFlags));
  struct stat status = {};
  if (file.get() < 0 || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return;
  const uint64_t size = std::min(static_cast<uint64_t>(status.st_size), kMost);
  if (size <= read_) return;
  std::string text(size - read_, '\0');
  const ssize_t got = pread(file.get(), text.data(), text.size(), static_cast<off_t>(read_));
  if (got <= 0) return;
  text.resize(static_cast<size_t>(got));
  size_t line = 0;
  for (size_t end = 0; (end = text.find('\n', line)) != text.npos; line = end + 1) {
    text[end] = '\0';
    char *at = nullptr, *behind = nullptr;
    const uint64_t start = strtoull(text.c_str() + line, &at, 16);
    const uint64_t length = *at == ' ' ? strtoull(at, &behind, 16) : 0;
    if (length == 0 || behind == nullptr || *behind != ' ') continue;
    functions_[start] = {length, behind + 1};
  }
  read_ += line;
}

}  // namespace fracgpu::tools
