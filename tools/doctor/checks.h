// The checks of `fracgpu doctor`, in the order of its page. None of them calls a vendor's library:
// what those say comes from probes.
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

// What this process was given.
struct Setup {
  std::string library{};      // mapped into this process; empty: not preloaded
  bool sound = true;          // the limits are well-formed
  bool asks_for_cap = false;  // there are limits, well-formed or not
  EnvironmentLimits asked{};
  Limits ceiling{};
  std::string tenant{};  // empty where nothing names it

  bool preloaded() const { return !library.empty(); }
  bool capped() const { return preloaded() && asks_for_cap; }
};

// Is the library here, made for this machine, and does the loader take it? (installation.cc)
Findings check_library(const Setup& setup);
// Is it in this process, and by which way?
Findings check_preload(const Setup& setup);

// The limits and the tenant's name. Fills what it found into `setup`. (surroundings.cc)
Findings check_limits(Setup& setup);
// The host's PID and IPC namespaces.
Findings check_namespaces();
// The folder that the ledgers lie in, and each of them.
Findings check_ledgers(const Setup& setup);

// One device, outside of any cap.
struct KnownGpu {
  std::string key, vendor, label;
  uint64_t physical = 0;  // 0: not known
  // By the limits, or by the ledger where the tenant is at work. A percentage may come out less,
  // down to the second.
  uint64_t cap = UINT64_MAX, least_cap = UINT64_MAX;
};

// The GPUs that the driver lists, with the caps that should be in force. (caps.cc)
std::vector<KnownGpu> known_gpus(const ProbeReport& gpus, const Setup& setup);

// What each vendor's library is, by its probe's name; what each lookup of its function finds; what
// it shows of the cap.
using VendorReports = std::map<std::string, ProbeReport>;
Findings check_driver(const ProbeReport& gpus, const VendorReports& vendors);  // drivers.cc
Findings check_lookups(const VendorReports& vendors, const Setup& setup);
Findings check_caps(const VendorReports& vendors, const std::vector<KnownGpu>& gpus,
                    const Setup& setup);

// MIG instances without the device nodes that a process needs for them. (mig_nodes.cc)
Findings check_mig_nodes(const ProbeReport& gpus);

// How GPUs are divided in hardware: MIG instances, and AMD's modes. (divisions.cc)
Findings check_divisions(const ProbeReport& gpus);

// GPU processes that no ledger knows. (bypass.cc)
Findings check_bypass(const ProbeReport& gpus);

}  // namespace fracgpu::tools
