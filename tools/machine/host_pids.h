// Host PIDs of processes in other PID namespaces. Those processes cannot learn their host PIDs, but
// a process that sees the host's /proc can.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>

namespace fracgpu::tools {

class HostPids {
 public:
  // The host PID of the process with PID `pid` in the namespace with this inode and with this start
  // time (clock ticks after boot). 0 if it cannot be determined: the process is gone, this process
  // does not see the host's PIDs, or it may not inspect that process.
  uint32_t find(uint64_t pid_namespace, uint32_t pid, uint64_t start_time);

 private:
  void scan();

  bool scanned_ = false;
  std::map<std::tuple<uint64_t, uint32_t, uint64_t>, uint32_t> known_;
};

}  // namespace fracgpu::tools
