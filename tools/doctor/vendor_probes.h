// The probes of the vendors' libraries: whether every way to a function leads to the hook, and what
// a program sees through it.
#pragma once

#include <string>
#include <vector>

#include "tools/doctor/probe.h"
#include "tools/doctor/probed_library.h"

namespace fracgpu::tools {

// The probes' names: "cuda", "nvml", … Probes that make a context take GPU memory for a moment.
std::vector<std::string> vendor_probes(bool with_contexts);

// It reports `missing` (why there is no such library), or `error` (a call that failed), or
//   library   the loaded library
//   version   the version that it reports
//   lookups   [{lookup, hooked, total}]; `total` is the function's result for the first device
//   totals    [{key, total}] for every device; `key` is empty if the device is not identified
int probe_vendor(const std::string& name, ProbeTeller& teller);

// The ledger's key of a device of an initialised CUDA driver; empty if the driver reports none.
std::string cuda_key(const ProbedLibrary& cuda, int device);

// One function for each probe, in nvidia_probes.cc and amd_probes.cc.
void probe_cuda(ProbeTeller& teller);
void probe_cuda_context(ProbeTeller& teller);
void probe_nvml(ProbeTeller& teller);
void probe_hip(ProbeTeller& teller);
void probe_hip_context(ProbeTeller& teller);
void probe_hsa(ProbeTeller& teller);
void probe_amdsmi(ProbeTeller& teller);
void probe_rocmsmi(ProbeTeller& teller);

}  // namespace fracgpu::tools
