// The state of a machine as this command shows it: its GPUs, their use, claims and caps by tenant,
// and the processes that hold memory under no cap. One snapshot, combined from the ledgers, the
// claim table and the drivers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/claims/claim_table.h"
#include "tools/machine/gpus.h"
#include "tools/machine/ledger_reader.h"

namespace fracgpu::tools {

// A tenant on one GPU: it has used the GPU, or claims a share of it, or both.
struct TenantOnGpu {
  std::string name;
  std::optional<DeviceUse> use{};
  uint32_t claimed_eighths = 0;
};

// A process that the driver counts memory for and that has no cap.
struct Outsider {
  uint32_t pid = 0;
  std::string user{}, command{};
  std::optional<uint64_t> used{};  // none: the driver does not report it
  uint64_t since_unix_s = 0;       // 0: not known
};

// All amounts are in bytes.
struct GpuState {
  std::string key;
  std::optional<int> index{};  // none: no driver here lists it, or it is a MIG instance
  std::string number{};        // "0", or "0:1" for an instance; empty: no driver here lists it
  bool divided = false;        // in MIG mode
  std::optional<MigInstance> instance{};
  std::optional<int> board{};  // AMD only: the GPU that it is, or is a part of
  std::string board_bus_id{};
  std::string mode{};     // of that GPU: "CPX/NPS4"; see amd_partitions.h
  uint64_t physical = 0;  // 0: not known
  uint64_t capped = 0;    // sum of the caps of tenants with a live process
  uint64_t held = 0;      // by the tenants, by their ledgers
  uint32_t claimed_eighths = 0;
  std::optional<uint64_t> driver_used{};  // by all processes
  bool driver_tells = false;              // whether the driver lists processes
  std::vector<TenantOnGpu> tenants{};     // sorted by use, largest first
  std::vector<Outsider> outsiders{};      // sorted likewise

  uint64_t used() const { return driver_used.value_or(held); }
  uint64_t claimed() const { return physical / claim_table_layout::kEighths * claimed_eighths; }
};

struct MachineState {
  std::vector<GpuState> gpus;
  std::vector<TenantUse> tenants;  // by name
  std::vector<std::string>
      complaints;  // a line each: ledgers and the claim table that cannot be read

  const TenantUse* tenant(const std::string& name) const;
  const GpuState* gpu(const std::string& key) const;
};

// The tenants to show. In a container, other tenants are left out.
struct Scope {
  std::vector<std::string> names{};  // only these, if any
  bool all = false;                  // also others than a container's own
  bool neighbours = false;           // with other tenants on their GPUs
};

// Complains about tenants of the scope that do not exist. Evaluates GPUs with all ledgers, so that
// a tenant outside the scope does not count as an outsider.
MachineState look_at_machine(const Scope& scope);

}  // namespace fracgpu::tools
