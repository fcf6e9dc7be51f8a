// See spec.h. The form of a spec: https://github.com/cncf-tags/container-device-interface.
#include "tools/cdi/spec.h"

#include <fmt/core.h>

#include <algorithm>
#include <stdexcept>

#include "shim/base/text.h"
#include "shim/config/ceiling.h"
#include "shim/config/identity.h"
#include "shim/config/limits.h"

namespace fracgpu::tools::cdi {
namespace {

constexpr char kVendor[] = "fracgpu.dev";
// The first version that allows a device's name to start with a digit.
constexpr char kVersion[] = "0.5.0";
constexpr char kLibraryInside[] = "/usr/lib/libfracgpu.so";
constexpr char kPreloadInside[] = "/etc/ld.so.preload";
constexpr uint64_t kGiB = uint64_t{1} << 30;

Amount amount_of(const std::string& device) {
  Amount amount;
  Message error;
  if (!parse_amount(device, amount, error)) throw std::runtime_error(error.c_str());
  return amount;
}

// Container engines require a letter or a digit at both ends.
void check_tenant(const std::string& name) {
  const auto is_end = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  if (is_tenant_name(name) && is_end(name.front()) && is_end(name.back())) return;
  throw std::runtime_error(
      fmt::format("{} cannot be a device of {}/tenant; accepted: 1 to 63 letters, digits, '-', '_' "
                  "or '.', with "
                  "a letter or a digit at both ends",
                  fracgpu::quoted(name).view(), kVendor));
}

// For programs that look for the size; the ceiling holds the cap itself.
Json environment_of(const std::string& device) {
  const uint64_t bytes = amount_of(device).bytes;
  if (bytes == 0 || bytes % kGiB != 0) return nullptr;
  return Json::array({fmt::format("GPU_MEM_LIMIT_GB={}", bytes / kGiB)});
}

}  // namespace

Class default_class(const std::string& name) {
  Class offered{name, {}};
  if (name == "memory") {
    for (int gib = 1; gib <= 192; ++gib) offered.devices.push_back(fmt::format("{}gb", gib));
  } else {
    // Twentieths and eighths.
    for (int parts = 1; parts < 40; ++parts) {
      if (parts % 2 == 0 || parts % 5 == 0) {
        offered.devices.push_back(fmt::format("{}", parts / 40.0));
      }
    }
  }
  return offered;
}

void check_device(const std::string& class_name, const std::string& device) {
  if (class_name == "tenant") return check_tenant(device);
  bool share = false, understood = true;
  try {
    share = amount_of(device).billionths != 0;
  } catch (const std::runtime_error&) {
    understood = false;
  }
  const bool nameable = std::all_of(device.begin(), device.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.';
  });
  if (understood && nameable && share == (class_name == "fraction")) return;
  throw std::runtime_error(fmt::format(
      "{} cannot be a device of {}/{}; accepted: {}", fracgpu::quoted(device).view(), kVendor,
      class_name,
      class_name == "fraction" ? "a share of a GPU as 0.5 or 0.125" : "a size as 8gb or 512MiB"));
}

DeviceFile file_of(const NodePaths& paths, const std::string& class_name,
                   const std::string& device) {
  if (class_name == "tenant") {
    return {.path = fmt::format("{}/tenants/{}", paths.files, device),
            .inside = kTenantFile,
            .text = device + "\n"};
  }
  return {
      .path = fmt::format("{}/limits/{}-{}.conf", paths.files, class_name, device),
      .inside = kCeilingFile,
      .text = fmt::format(
          "# The most GPU memory of a container that was started with this device.\n{}\n", device)};
}

std::string preload_path(const NodePaths& paths) {
  return paths.files + "/ld.so.preload";
}

std::string preload_text() {
  return std::string(kLibraryInside) + "\n";
}

std::string spec_file(const std::string& class_name) {
  return fmt::format("{}-{}.json", kVendor, class_name);
}

Json spec_of(const Class& offered, const NodePaths& paths) {
  Json devices = Json::array();
  for (const std::string& device : offered.devices) {
    const DeviceFile file = file_of(paths, offered.name, device);
    Json edits = {{"mounts", Json::array({mount(file.path, file.inside, Access::ro)})}};
    const Json environment = offered.name == "memory" ? environment_of(device) : Json(nullptr);
    if (!environment.is_null()) edits["env"] = environment;
    devices.push_back({{"name", device}, {"containerEdits", edits}});
  }
  return spec_of(offered.name, paths, devices);
}

Json mount(const std::string& from, const std::string& to, Access access) {
  return {
      {"hostPath", from},
      {"containerPath", to},
      {"options", Json::array({access == Access::ro ? "ro" : "rw", "nosuid", "nodev", "bind"})}};
}

Json spec_of(const std::string& class_name, const NodePaths& paths, const Json& devices) {
  // The hook runs in the engine's namespaces: the root of a container with users of its own may not
  // read the engine's description of the image.
  const Json hook = {{"hookName", "createRuntime"},
                     {"path", paths.command},
                     {"args", Json::array({"fracgpu", "cdi", "check-image"})}};
  const Json mounts = Json::array({mount(paths.library, kLibraryInside, Access::ro),
                                   mount(preload_path(paths), kPreloadInside, Access::ro)});
  return {{"cdiVersion", kVersion},
          {"kind", fmt::format("{}/{}", kVendor, class_name)},
          {"containerEdits", {{"mounts", mounts}, {"hooks", Json::array({hook})}}},
          {"devices", devices}};
}

}  // namespace fracgpu::tools::cdi
