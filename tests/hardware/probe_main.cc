// hardware_probe NAME [--OPTION VALUE …]: asks one family of questions; see probe.h. `find` says in
// its exit status what GPUs there are: 0 and a line for each vendor, 3 when there are none.
// `settle` waits until what a step held is free again.
#include <cstdio>
#include <map>

#include "tests/hardware/cuda.h"
#include "tests/hardware/observer.h"
#include "tests/hardware/probes.h"

namespace hardware {
namespace {

constexpr int kNoGpu = 3;

// "nvidia FREE USED UUID" and "amd FREE USED", with bytes.
int find() {
  bool found = false;
  int count = 0;
  size_t total = 0;
  try {
    if (try_cuda("cuInit", 0u) == 0 && try_cuda("cuDeviceGetCount", &count) == 0 && count > 0 &&
        try_cuda("cuDeviceTotalMem_v2", &total, CUdevice{0}) == 0) {
      uint64_t used = 0;
      try {
        used = nvml::memory().used;
      } catch (const Unmeasured& error) {
        std::fprintf(stderr, "hardware_probe: NVML: %s\n", error.what());
      }
      std::printf("nvidia %llu %llu %s\n",
                  static_cast<unsigned long long>(total > used ? total - used : 0),
                  static_cast<unsigned long long>(used), nvml::uuid().c_str());
      found = true;
    }
  } catch (const Unmeasured&) {
  }
  const auto devices = kfd::devices();
  if (!devices.empty()) {
    uint64_t used = 0;
    kfd::device_used(devices[0], &used);
    const uint64_t bytes = devices[0].vram_bytes;
    std::printf("amd %llu %llu\n", static_cast<unsigned long long>(bytes > used ? bytes - used : 0),
                static_cast<unsigned long long>(used));
    found = true;
  }
  return found ? 0 : kNoGpu;
}

// Drivers take a while to free what a process held: until the device's use is what it was before,
// or ten seconds are over and somebody else must be holding it.
int settle(const Options& options) {
  const Vendor vendor = options.text("vendor") == "amd" ? Vendor::amd : Vendor::nvidia;
  const uint64_t enough = options.number("used") + 64 * kMiB;
  const double end = now_ms() + 10000;
  try {
    for (uint64_t used = 0; device_used(vendor, &used) && used > enough && now_ms() < end;) {
      wait_ms(5);
    }
  } catch (const Unmeasured&) {
  }
  return 0;
}

const std::map<std::string, void (*)(const Options&)>& probes() {
  static const std::map<std::string, void (*)(const Options&)> all = {
      {"amd", ask_amd},
      {"amd-books", ask_amd_books},
      {"capture", ask_capture},
      {"contexts", ask_contexts},
      {"death", ask_death},
      {"entry-points", ask_entry_points},
      {"fill", fill},
      {"fill-amd", fill_amd},
      {"graphs", ask_graphs},
      {"identity", ask_identity},
      {"pool-reuse", ask_pool_reuse},
      {"private-namespace", ask_private_namespace},
      {"process-list", ask_process_list},
      {"sharing", ask_sharing},
      {"sweep", ask_sweep},
      {"times", ask_times},
  };
  return all;
}

}  // namespace
}  // namespace hardware

int main(int argc, char** argv) {
  using namespace hardware;
  const std::string name = argc > 1 ? argv[1] : "";
  const Options options(argc > 1 ? argc - 2 : 0, argv + 2);
  if (name == "find") return find();
  if (name == "settle") return settle(options);
  if (name == "watch") return watch(options);
  if (name == "witness") return run_witness(options);
  const auto found = probes().find(name);
  if (found == probes().end()) {
    std::fprintf(stderr, "usage: hardware_probe find|settle|watch|witness");
    for (const auto& [each, ask] : probes()) std::fprintf(stderr, "|%s", each.c_str());
    std::fprintf(stderr, " [--OPTION VALUE ...]\n");
    return 2;
  }
  try {
    found->second(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hardware_probe: %s: %s\n", name.c_str(), error.what());
    return 1;
  }
  // Drivers run code at exit that may wait for what was left behind.
  std::fflush(stdout);
  std::_Exit(0);
}
