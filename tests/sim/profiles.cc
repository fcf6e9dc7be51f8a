// The hardware profiles of the simulated node, by name, with an optional count in front
// ("8xh100-80gb"). Sizes are those that the vendor's tools show for the real product, rounded down
// to whole 2 MiB pages. Context sizes are of the order seen with lazy loading on each generation.
#include <cstdlib>
#include <cstring>

#include "node.h"

namespace sim {
namespace {

struct Profile {
  const char* key;
  const char* name;
  uint64_t total_mib;
  uint64_t context_mib;
  uint32_t major, minor, multiprocessors, pci_id, pci_subsystem;
};

constexpr Profile kProfiles[] = {
    {"a100-40gb", "NVIDIA A100-SXM4-40GB", 40960, 414, 8, 0, 108, 0x20b010de, 0x134f10de},
    {"a100-80gb", "NVIDIA A100-SXM4-80GB", 81920, 414, 8, 0, 108, 0x20b210de, 0x147f10de},
    {"h100-80gb", "NVIDIA H100 80GB HBM3", 81558, 500, 9, 0, 132, 0x233010de, 0x16c110de},
    {"h200", "NVIDIA H200", 143770, 520, 9, 0, 132, 0x233510de, 0x18be10de},
    {"tiny", "Simulated Tiny GPU", 1024, 64, 9, 0, 16, 0x1fff10de, 0x000010de},
};

void set_uuid(DeviceRow* device, std::string_view profile, int index) {
  // Stable between runs, different between devices and profiles: FNV-1a over the name and the
  // index.
  uint64_t hash = 0xcbf29ce484222325ULL + static_cast<uint64_t>(index) * 0x9e3779b97f4a7c15ULL;
  for (int half = 0; half < 2; ++half) {
    for (char c : profile) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
    for (int i = 0; i < 8; ++i)
      device->uuid[half * 8 + i] = static_cast<unsigned char>(hash >> (8 * i));
  }
  device->uuid[6] = static_cast<unsigned char>((device->uuid[6] & 0x0f) | 0x40);
  device->uuid[8] = static_cast<unsigned char>((device->uuid[8] & 0x3f) | 0x80);
}

}  // namespace

bool fill_profile(NodeFile* file, std::string_view text, const NodeOptions& options,
                  std::string* error) {
  long count = 1;
  std::string_view key = text;
  const size_t cross = text.find('x');
  if (cross != std::string_view::npos && cross > 0 &&
      text.substr(0, cross).find_first_not_of("0123456789") == std::string_view::npos) {
    count = std::strtol(std::string(text.substr(0, cross)).c_str(), nullptr, 10);
    key = text.substr(cross + 1);
  }
  const Profile* found = nullptr;
  for (const Profile& profile : kProfiles) {
    if (key == profile.key) found = &profile;
  }
  if (found == nullptr || count < 1 || count > kMaxDevices) {
    if (error != nullptr) *error = "unknown profile '" + std::string(text) + "'";
    return false;
  }
  const auto pages = [](int64_t chosen, uint64_t fallback) {
    const uint64_t mib = chosen >= 0 ? static_cast<uint64_t>(chosen) : fallback;
    return ((mib << 20) + kPage - 1) / kPage * kPage;
  };
  file->header.device_count = static_cast<uint32_t>(count);
  std::strncpy(file->header.profile, std::string(text).c_str(), sizeof file->header.profile - 1);
  for (int i = 0; i < count; ++i) {
    DeviceRow& device = file->device[i];
    std::strncpy(device.name, found->name, sizeof device.name - 1);
    set_uuid(&device, text, i);
    device.pci_domain = 0;
    device.pci_bus = 0x18 + 0x0c * static_cast<uint32_t>(i);
    device.pci_device = 0;
    device.pci_id = found->pci_id;
    device.pci_subsystem = found->pci_subsystem;
    device.major = found->major;
    device.minor = found->minor;
    device.multiprocessors = found->multiprocessors;
    device.total = pages(options.total_mib, found->total_mib);
    device.context_bytes = pages(options.context_mib, found->context_mib);
  }
  return true;
}

}  // namespace sim
