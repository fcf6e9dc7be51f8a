// All that this command shows of a machine: its GPUs, with what is used, claimed and capped there,
// whose it is, and who holds memory under no cap. One look, put together from the ledgers, the
// claim table and the drivers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/claims/claim_table.h"
#include "tools/machine/gpus.h"
#include "tools/machine/ledger_reader.h"

namespace fracgpu::tools {

// A tenant on one GPU: it has used it, or claims a share of it, or both.
struct TenantOnGpu {
  std::string name;
  std::optional<DeviceUse> use{};
  uint32_t claimed_eighths = 0;
};

// A process that the driver counts memory for and no cap.
struct Outsider {
  uint32_t pid = 0;
  std::string user{}, command{};
  std::optional<uint64_t> used{};  // none: the driver does not tell
  uint64_t since_unix_s = 0;       // 0: not known
};

// All amounts in bytes.
struct GpuState {
  std::string key;
  std::optional<int> index{};  // none: no driver here lists it, or it is a MIG instance
  std::string number{};        // "0", and of an instance "0:1"; empty: no driver here lists it
  bool divided = false;        // in MIG mode
  std::optional<MigInstance> instance{};
  std::optional<int> board{};  // of AMD's: which GPU it is, or is a part of
  std::string board_bus_id{};
  std::string mode{};     // of that GPU: "CPX/NPS4"; see amd_partitions.h
  uint64_t physical = 0;  // 0: not known
  uint64_t capped = 0;    // sum of the caps of tenants of which a process lives
  uint64_t held = 0;      // by the tenants, by their ledgers
  uint32_t claimed_eighths = 0;
  std::optional<uint64_t> driver_used{};  // by everybody
  bool driver_tells = false;              // who holds memory
  std::vector<TenantOnGpu> tenants{};     // those that use the most first
  std::vector<Outsider> outsiders{};      // the same

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

// Which tenants are to be shown. In a container those of others are left out.
struct Scope {
  std::vector<std::string> names{};  // of these only, if any
  bool all = false;                  // a container's own is not enough
  bool neighbours = false;           // with who else is on their GPUs
};

// Tenants of the scope that do not exist are complained of; what they have to do with GPUs is found
// out with all ledgers in sight, so that nobody is called an outsider for being left out.
MachineState look_at_machine(const Scope& scope);

}  // namespace fracgpu::tools
