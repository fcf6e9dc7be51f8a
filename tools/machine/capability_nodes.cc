// See capability_nodes.h.
#include "tools/machine/capability_nodes.h"

#include <fmt/core.h>
#include <unistd.h>

#include <fstream>

namespace fracgpu::tools {
namespace {

// Parses a file with lines such as "DeviceFileMinor: 12". Adds nothing if there is no such file.
void add_node(std::string file, CapabilityNodes& nodes) {
  std::ifstream lines(file);
  std::string name;
  uint32_t value = 0;
  CapabilityNode found{.node = {}, .file = std::move(file)};
  while (lines >> name >> value) {
    if (name == "DeviceFileMinor:") {
      found.node = fmt::format("/dev/nvidia-caps/nvidia-cap{}", value);
    } else if (name == "DeviceFileModify:") {
      found.may_make = value != 0;
    }
  }
  if (!found.node.empty()) nodes.push_back(std::move(found));
}

}  // namespace

bool CapabilityNode::is_there() const {
  return access(node.c_str(), F_OK) == 0;
}

CapabilityNodes capability_nodes(const MigInstance& instance) {
  CapabilityNodes nodes;
  if (!instance.gpu_minor) return nodes;
  const std::string folder = fmt::format("/proc/driver/nvidia/capabilities/gpu{}/mig/gi{}",
                                         *instance.gpu_minor, instance.gpu_instance);
  add_node(folder + "/access", nodes);
  add_node(fmt::format("{}/ci{}/access", folder, instance.compute_instance), nodes);
  return nodes;
}

CapabilityNodes missing(CapabilityNodes nodes) {
  std::erase_if(nodes, [](const CapabilityNode& each) { return each.is_there(); });
  return nodes;
}

std::string lack_of(const std::string& instance, const CapabilityNodes& missing) {
  std::string names;
  for (const CapabilityNode& each : missing) names += (names.empty() ? "" : " and ") + each.node;
  return fmt::format("{} lacks {}, without which only CAP_SYS_ADMIN lets a process use it",
                     instance, names);
}

std::string remedy_for(const CapabilityNodes& missing) {
  std::string command = "nvidia-modprobe";
  for (const CapabilityNode& each : missing) {
    command += " -f " + each.file;
    if (each.may_make) continue;
    return fmt::format(
        "{} says DeviceFileModify: 0, so that nvidia-modprobe makes none; as root make it with "
        "mknod, with the major number of nvidia-caps in /proc/devices",
        each.file);
  }
  return "as root: " + command;
}

}  // namespace fracgpu::tools
