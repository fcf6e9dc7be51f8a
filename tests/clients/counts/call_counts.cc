// call_counts: how many calls of the driver and of NVML one warm call makes, itself included.
// Prints JSON: {"cuMemAlloc_v2": {"calls": 100, "counts": {"cuMemAlloc_v2": 100}}, ...}. Counts
// what FRACGPU_SIM_CALLS has; calls.py runs it with and without the library, and the difference is
// what the library adds.
#include <cstdio>
#include <cstdlib>

#include "measurement.h"
#include "sim/node/calls.h"

namespace client {
namespace {

void start() {
  call("cuInit", 0u);
  call("cuDevicePrimaryCtxRetain", &shared.context, 0);
  call("cuCtxSetCurrent", shared.context);
  call("cuStreamCreate", &shared.stream, 1u);
  CUmodule module = nullptr;
  call("cuModuleLoadData", &module, static_cast<const void*>("any"));
  call("cuModuleGetFunction", &shared.function, module, static_cast<const char*>("kernel"));
}

void print(const AllCounts& all) {
  std::printf("{");
  const char* before = "";
  for (const auto& [name, measured] : all) {
    std::printf("%s\n  \"%s\": {\"calls\": %d, \"counts\": {", before, name.c_str(),
                measured.repetitions);
    const char* inner = "";
    for (const auto& [callee, count] : measured.counts) {
      std::printf("%s\"%s\": %llu", inner, callee.c_str(), static_cast<unsigned long long>(count));
      inner = ", ";
    }
    std::printf("}}");
    before = ",";
  }
  std::printf("\n}\n");
}

}  // namespace
}  // namespace client

int main() {
  if (std::getenv(sim::kCallsVariable) == nullptr)
    client::give_up("FRACGPU_SIM_CALLS is not set", 2);
  const client::Exporter exporter;
  client::AllCounts all;
  client::start();
  client::measure_linear(all);
  client::measure_vmm(all);
  client::measure_ipc(all, exporter);
  client::measure_pools(all);
  client::measure_streams(all);
  client::measure_graphs(all);
  client::measure_arrays(all);
  client::measure_code(all);
  client::measure_contexts(all);
  client::print(all);
  return 0;
}
