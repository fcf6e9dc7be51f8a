// The checks of `fracgpu doctor`, in the order of its output. None of them calls a vendor's
// library. Probes provide the vendors' answers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "shim/config/environment_limits.h"
#include "shim/config/limits.h"
#include "tools/doctor/finding.h"
#include "tools/doctor/probe.h"

namespace fracgpu::tools {

// The configuration of this process.
struct Setup {
  std::string library{};      // whether the limits are well-formed
  bool sound = true;          // the limits are well-formed
  bool asks_for_cap = false;  // whether there are limits, well-formed or not
  EnvironmentLimits asked{};
  Limits ceiling{};
  std::string tenant{};  // empty if nothing names it

  bool preloaded() const { return !library.empty(); }
  bool capped() const { return preloaded() && asks_for_cap; }
};

// Whether the library exists, fits this machine, and is accepted by the loader. (installation.cc)
Findings check_library(const Setup& setup);
// Whether the library is in this process, and how it got there.
Findings check_preload(const Setup& setup);

// The limits and the tenant's name. Stores the results in `setup`. (surroundings.cc)
Findings check_limits(Setup& setup);
// Whether the PID and IPC namespaces are the host's.
Findings check_namespaces();
// The ledgers' folder, and each ledger.
Findings check_ledgers(const Setup& setup);

// One device, as seen without any cap.
struct KnownGpu {
  std::string key, vendor, label;
  uint64_t physical = 0;  // 0: not known
  // By the limits, or by the ledger if the tenant is at work. A percentage may result in less, down
  // to `least_cap`.
  uint64_t cap = UINT64_MAX, least_cap = UINT64_MAX;
};

// The GPUs that the driver lists, with the caps that should be in force. (caps.cc)
std::vector<KnownGpu> known_gpus(const ProbeReport& gpus, const Setup& setup);

// The reports on the vendors' libraries, by probe name: the library, the result of each lookup of
// its function, and the memory that it shows.
using VendorReports = std::map<std::string, ProbeReport>;
Findings check_driver(const ProbeReport& gpus, const VendorReports& vendors);  // drivers.cc
Findings check_lookups(const VendorReports& vendors, const Setup& setup);
Findings check_caps(const VendorReports& vendors, const std::vector<KnownGpu>& gpus,
                    const Setup& setup);

// MIG instances without the device nodes that a process needs for them. (mig_nodes.cc)
Findings check_mig_nodes(const ProbeReport& gpus);

// The division of GPUs in hardware: MIG instances, and AMD's modes. (divisions.cc)
Findings check_divisions(const ProbeReport& gpus);

// GPU processes that are in no ledger. (bypass.cc)
Findings check_bypass(const ProbeReport& gpus);

}  // namespace fracgpu::tools
