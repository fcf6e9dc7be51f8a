// Host PIDs of processes that run in PID namespaces of their own: they cannot learn them from
// inside, but whoever sees the host's /proc can.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>

namespace fracgpu::tools {

class HostPids {
 public:
  // The host PID of the process that sees itself as `pid` in the namespace with this inode and was
  // started then (clock ticks after boot); 0 where it cannot be known: it is gone, this process
  // does not see the host's PIDs, or it may not look at that process.
  uint32_t find(uint64_t pid_namespace, uint32_t pid, uint64_t start_time);

 private:
  void scan();

  bool scanned_ = false;
  std::map<std::tuple<uint64_t, uint32_t, uint64_t>, uint32_t> known_;
};

}  // namespace fracgpu::tools
