// The processes in tenants' ledgers, to find processes that only the driver knows.
#pragma once

#include <cstdint>
#include <set>
#include <utility>

#include "shim/config/identity.h"
#include "tools/machine/ledger_reader.h"

namespace fracgpu::tools {

class TenantProcesses {
 public:
  void add(const TenantUse& tenant) {
    for (const DeviceUse& device : tenant.devices) {
      for (const ProcessUse& process : device.processes) {
        if (!process.alive) continue;
        if (process.host_pid != 0) host_.insert(process.host_pid);
        inner_.insert({process.pid_namespace, process.pid});
      }
    }
  }

  // Whether the driver's PID is a tenant's process, by its PID on the host or in our namespace.
  bool knows(uint32_t pid) const {
    return host_.count(pid) != 0 || inner_.count({here_.pid_namespace, pid}) != 0;
  }

 private:
  const ProcessName here_ = process_of_own_namespace(1);
  std::set<uint32_t> host_{};
  std::set<std::pair<uint64_t, uint32_t>> inner_{};
};

}  // namespace fracgpu::tools
