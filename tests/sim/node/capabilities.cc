// See capabilities.h. Numbers and contents are as in NVIDIA's MIG User Guide, "Device Nodes and
// Capabilities".
#include "sim/node/capabilities.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "sim/node/mig.h"

namespace sim {
namespace {

using std::filesystem::path;

// The guide's list ends with gpu31/gi14/ci7/access 4322.
constexpr uint32_t kFirstMinor = 3, kPerInstance = 9, kPerGpu = 15 * kPerInstance;

// Whole from the moment it is there.
void show(const path& folder, uint32_t minor, std::set<path>& shown) {
  std::error_code error;
  const path file = folder / "access";
  shown.insert(folder);
  if (exists(file, error)) return;
  create_directories(folder, error);
  const path unfinished = folder / "access.new";
  std::ofstream(unfinished) << "DeviceFileMinor: " << minor
                            << "\nDeviceFileMode: 292\nDeviceFileModify: 1\n";
  rename(unfinished, file, error);
}

// Folders below it of instances that are gone.
void hide(const path& folder, const char* prefix, const std::set<path>& shown) {
  std::error_code error;
  std::set<path> gone;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const path& each = entry->path();
    if (each.filename().string().starts_with(prefix) && !shown.contains(each)) gone.insert(each);
  }
  for (const path& each : gone) remove_all(each, error);
}

}  // namespace

void show_capabilities(const Node& node, int gpu) {
  const char* const root = std::getenv(kCapsVariable);
  if (root == nullptr || *root == '\0') return;
  const auto number = static_cast<uint32_t>(node.ordinal(gpu));
  const path mig =
      path(root) / "proc/driver/nvidia/capabilities" / ("gpu" + std::to_string(number)) / "mig";
  std::set<path> shown;
  for (const int instance : node.mig_instances(gpu)) {
    const uint32_t id = node.device(instance).gpu_instance;
    const uint32_t minor = kFirstMinor + number * kPerGpu + id * kPerInstance;
    const path folder = mig / ("gi" + std::to_string(id));
    show(folder, minor, shown);
    for (const MigDevice& device : compute_instances(node, instance)) {
      const uint32_t compute = compute_instance(node, device).id;
      show(folder / ("ci" + std::to_string(compute)), minor + 1 + compute, shown);
    }
    hide(folder, "ci", shown);
  }
  hide(mig, "gi", shown);
}

}  // namespace sim
