// Who holds memory of a GPU by its driver's own list, whether or not a ledger knows them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shim/ledger/ledger.h"
#include "tools/machine/gpus.h"

namespace fracgpu::tools {

struct DriverProcess {
  uint32_t pid = 0;               // as this process sees it
  ProcessName name{};             // as a ledger may have it
  std::optional<uint64_t> bytes;  // none: the driver does not tell how much
};

// Who holds how much (none: the driver does not tell), by PIDs as the driver has them, which may be
// those of the host. None where it tells nobody.
using DriverList = std::map<uint32_t, std::optional<uint64_t>>;
std::optional<DriverList> driver_list(const Gpu& gpu);

// None where the driver tells nobody, or tells PIDs that mean nothing here.
std::optional<std::vector<DriverProcess>> driver_processes(const Gpu& gpu);

}  // namespace fracgpu::tools
