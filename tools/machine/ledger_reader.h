// Reads tenants' ledgers into plain values for display. Nothing in a file is trusted, because every
// process of a tenant may write to it: texts are cut and cleaned, and numbers can be anything.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fracgpu/ledger_layout.h"
#include "tools/machine/host_pids.h"

namespace fracgpu::tools {

using Reason = layout::Reason;

// "cap", "driver", "runtime" or "ledger".
const char* name_of(Reason reason);

// Counts of refused memory by reason. They start again when all processes of a tenant are gone.
struct RefusalCounts {
  std::array<uint64_t, layout::kReasons> by_reason{};
  uint64_t total() const;
};

// What one process holds on one device. All amounts are in bytes.
struct ProcessUse {
  uint32_t host_pid = 0;  // 0: not known; `pid` is then the PID that the process itself sees
  uint32_t pid = 0;
  uint64_t pid_namespace = 0;
  uint64_t start_time = 0;  // clock ticks after boot
  uint32_t uid = 0;
  std::string user;
  std::string command;
  bool alive = false;
  bool orphaned = false;          // dead, but others hold what it exported: `used` still counts
  bool foreign_importer = false;  // of another tenant, with imported memory of this one
  uint64_t used = 0;
  uint64_t imported = 0;  // memory that others pay for
  uint64_t leased = 0;
  uint64_t peak = 0;
  uint64_t overhead = 0;  // the part of `used` that no call requested: contexts etc.
  uint64_t since_unix_s = 0;
  // The number of the process's allocations in its last report, and the time of that report; see
  // layout::AllocationCount.
  std::optional<uint64_t> allocations{};
  uint64_t allocations_unix_s = 0;
  bool lives() const { return alive && !foreign_importer; }  // as one of the tenant's own
  std::optional<uint64_t> driver_used{};                     // by the driver's list, if it was read
};

struct DeviceUse {
  std::string key;
  std::optional<uint64_t> cap;  // none: not capped
  uint64_t physical = 0;
  uint64_t used = 0;  // by live processes, and exported by dead ones
  uint64_t peak = 0;
  std::optional<uint64_t> needed{};  // at most, by a recorder; none: not recorded
  RefusalCounts refusals;
  bool damaged =
      false;  // something else wrote into the ledger: nothing is granted, amounts are off
  std::vector<ProcessUse> processes;  // those that hold or have held memory here

  bool lives() const;  // a process of the tenant does
};

// One refusal; see layout::RefusalRecord. Amounts are in bytes.
struct RefusalUse {
  uint64_t number = 0;
  uint64_t unix_ms = 0;
  Reason reason = Reason::cap;
  std::string key;  // of the device; empty: not known
  std::string api;
  std::string command;
  std::string user;
  uint32_t uid = 0;
  uint32_t host_pid = 0;  // 0: not known
  uint32_t pid = 0;
  uint64_t start_time = 0;
  std::optional<uint64_t> asked;   // exactly what the program requested; none: not known
  std::optional<uint64_t> needed;  // what the request takes: at least as much
  std::optional<uint64_t> cap;
  uint64_t own = 0;   // held by the requesting process
  uint64_t held = 0;  // by the tenant
  uint64_t largest = 0;
  uint32_t largest_pid = 0;
  std::string largest_command;
};

struct TenantUse {
  std::string name;
  std::string claim;  // of Kubernetes, as "namespace/name"; empty: none, or not known
  std::string path;
  uint32_t owner_uid = 0;    // of the file
  uint32_t mode = 0;         // its permissions
  std::set<uint32_t> users;  // of the tenant's living processes
  uint64_t created_unix_s = 0;
  std::vector<DeviceUse> devices;
  RefusalCounts refusals_elsewhere;  // on unknown devices
  std::vector<RefusalUse> refused;   // the last ones, newest first
};

// The names of all tenants that have a ledger on this machine, sorted.
std::vector<std::string> tenant_names();

// Reads one tenant's ledger. Throws std::runtime_error with one line if there is no ledger, if it
// is not readable, or if it is not a ledger of this version.
TenantUse read_tenant(const std::string& name);

// The same for many ledgers. All of them get host PIDs from one scan of /proc.
TenantUse read_tenant(const std::string& name, HostPids& host_pids);

}  // namespace fracgpu::tools
