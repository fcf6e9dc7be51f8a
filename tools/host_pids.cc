// Joins /proc's NSpid lines with namespaces; see host_pids.h.
#include "tools/host_pids.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace fracgpu::tools {
namespace {

constexpr uint64_t kInitialPidNamespace = 4026531836;  // include/linux/proc_ns.h

// The number in "pid:[4026531836]", or 0.
uint64_t pid_namespace_of(const std::string& process) {
  std::error_code error;
  const std::string target = std::filesystem::read_symlink("/proc/" + process + "/ns/pid", error);
  const size_t digits = target.find('[');
  return digits == std::string::npos ? 0 : strtoull(target.c_str() + digits + 1, nullptr, 10);
}

// The last number of the NSpid line: the PID in the innermost namespace. 0 where there is none.
uint32_t innermost_pid(const std::string& process) {
  std::ifstream status("/proc/" + process + "/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("NSpid:")) continue;
    std::istringstream numbers(line.substr(6));
    uint32_t pid = 0;
    while (numbers >> pid) {
    }
    return pid;
  }
  return 0;
}

// Field 22 of the stat file, counted from the last ')' because the command may hold anything.
uint64_t start_time_of(const std::string& process) {
  std::ifstream file("/proc/" + process + "/stat");
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  const size_t end = stat.rfind(')');
  if (end == std::string::npos) return 0;
  std::istringstream fields(stat.substr(end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  uint64_t ticks = 0;
  fields >> ticks;
  return ticks;
}

}  // namespace

uint32_t HostPids::find(uint64_t pid_namespace, uint32_t pid, uint64_t start_time) {
  if (!scanned_) scan();
  const auto found = known_.find({pid_namespace, pid, start_time});
  return found == known_.end() ? 0 : found->second;
}

void HostPids::scan() {
  scanned_ = true;
  if (pid_namespace_of("self") != kInitialPidNamespace) return;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end; entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    uint32_t host_pid = 0;
    const auto [rest, code] = std::from_chars(name.data(), name.data() + name.size(), host_pid);
    if (code != std::errc() || *rest != '\0') continue;
    const uint64_t pid_namespace = pid_namespace_of(name);
    if (pid_namespace == 0 || pid_namespace == kInitialPidNamespace) continue;
    known_[{pid_namespace, innermost_pid(name), start_time_of(name)}] = host_pid;
  }
}

}  // namespace fracgpu::tools
