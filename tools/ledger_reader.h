// Reads tenants' ledgers as plain values, for showing. Nothing in a file is trusted: every process
// of a tenant may write it, so texts are cut and cleaned, and numbers can be anything.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fracgpu::tools {

// What one process holds on one device. All amounts in bytes.
struct ProcessUse {
  uint32_t host_pid = 0;  // 0: not known; `pid` is then what the process itself sees
  uint32_t pid = 0;
  uint64_t pid_namespace = 0;
  uint32_t uid = 0;
  std::string user;
  std::string command;
  bool alive = false;
  bool orphaned = false;  // dead, but others still hold what it exported: `used` still counts
  uint64_t used = 0;
  uint64_t leased = 0;
  uint64_t peak = 0;
  uint64_t implicit = 0;  // of `used`, what no call asked for: contexts and the like
  uint64_t since_unix_s = 0;
};

struct DeviceUse {
  std::string key;
  std::optional<uint64_t> cap;  // none: not capped
  uint64_t physical = 0;
  uint64_t used = 0;  // by the living, and what the dead exported
  uint64_t peak = 0;
  uint64_t refusals = 0;
  bool damaged =
      false;  // something else wrote into the ledger: nothing is granted, amounts are off
  std::vector<ProcessUse> processes;  // those that hold or have held memory here
};

struct TenantUse {
  std::string name;
  std::string path;
  uint64_t created_unix_s = 0;
  std::vector<DeviceUse> devices;
};

// The names of all tenants that have a ledger on this machine, sorted.
std::vector<std::string> tenant_names();

// Reads one tenant's ledger. Throws std::runtime_error with one line when there is none, when it
// may not be read, or when it is not a ledger of this version.
TenantUse read_tenant(const std::string& name);

}  // namespace fracgpu::tools
