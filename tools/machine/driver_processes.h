// The processes that hold memory of a GPU by its driver's list, whether or not a ledger knows them.
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
  std::optional<uint64_t> bytes;  // none: the driver does not report the amount
};

// The bytes of each process (none: the driver does not report them), by the driver's PIDs, which
// may be the host's. None if the driver returns no list.
using DriverList = std::map<uint32_t, std::optional<uint64_t>>;
std::optional<DriverList> driver_list(const Gpu& gpu);

// None if the driver returns no list, or if its PIDs mean nothing here.
std::optional<std::vector<DriverProcess>> driver_processes(const Gpu& gpu);

}  // namespace fracgpu::tools
