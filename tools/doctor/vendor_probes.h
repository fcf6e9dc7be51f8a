// The probes of the vendors' libraries: does every way to a function lead to the hook, and what
// does a program see by it?
#pragma once

#include <string>
#include <vector>

#include "tools/doctor/probe.h"

namespace fracgpu::tools {

// Their names: "cuda", "nvml", … Those that make a context take GPU memory for a moment.
std::vector<std::string> vendor_probes(bool with_contexts);

// What it tells: `missing` (why there is no such library), or `error` (a call that failed), or
//   library   the one that was loaded
//   version   what it says of itself
//   lookups   [{lookup, hooked, total}]; `total` is what the function says of the first device
//   totals    [{key, total}]: of every device; `key` is empty where it cannot be told apart
int probe_vendor(const std::string& name, ProbeTeller& teller);

// One each, in nvidia_probes.cc and amd_probes.cc.
void probe_cuda(ProbeTeller& teller);
void probe_cuda_context(ProbeTeller& teller);
void probe_nvml(ProbeTeller& teller);
void probe_hip(ProbeTeller& teller);
void probe_hip_context(ProbeTeller& teller);
void probe_hsa(ProbeTeller& teller);
void probe_amdsmi(ProbeTeller& teller);
void probe_rocmsmi(ProbeTeller& teller);

}  // namespace fracgpu::tools
