// Maps /proc's processes to their PIDs inside their namespaces; see host_pids.h.
#include "tools/machine/host_pids.h"

#include <charconv>
#include <filesystem>
#include <string>

#include "shim/config/identity.h"

namespace fracgpu::tools {

uint32_t HostPids::find(uint64_t pid_namespace, uint32_t pid, uint64_t start_time) {
  if (!scanned_) scan();
  const auto found = known_.find({pid_namespace, pid, start_time});
  return found == known_.end() ? 0 : found->second;
}

void HostPids::scan() {
  scanned_ = true;
  if (!in_host_pid_namespace()) return;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end; entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    uint32_t host_pid = 0;
    const auto [rest, code] = std::from_chars(name.data(), name.data() + name.size(), host_pid);
    if (code != std::errc() || *rest != '\0') continue;
    const ProcessName inside = seen_from_inside(host_pid);
    if (inside.pid_namespace == 0) continue;
    known_[{inside.pid_namespace, inside.pid, start_time_on_host(host_pid)}] = host_pid;
  }
}

}  // namespace fracgpu::tools
