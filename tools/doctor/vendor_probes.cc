// The list of the vendors' probes; see vendor_probes.h.
#include "tools/doctor/vendor_probes.h"

namespace fracgpu::tools {
namespace {

struct Probe {
  const char* name;
  void (*probe)(ProbeTeller&);
  bool makes_context;
};
constexpr Probe kProbes[] = {{"cuda", probe_cuda, false},
                             {"nvml", probe_nvml, false},
                             {"hip", probe_hip, false},
                             {"hsa", probe_hsa, false},
                             {"amdsmi", probe_amdsmi, false},
                             {"rocmsmi", probe_rocmsmi, false},
                             {"cuda-context", probe_cuda_context, true},
                             {"hip-context", probe_hip_context, true}};

}  // namespace

std::vector<std::string> vendor_probes(bool with_contexts) {
  std::vector<std::string> names;
  for (const Probe& each : kProbes) {
    if (with_contexts || !each.makes_context) names.emplace_back(each.name);
  }
  return names;
}

int probe_vendor(const std::string& name, ProbeTeller& teller) {
  for (const Probe& each : kProbes) {
    if (name != each.name) continue;
    each.probe(teller);
    return 0;
  }
  return 2;
}

}  // namespace fracgpu::tools
