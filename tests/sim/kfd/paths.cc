// Reading paths. The driver's folder has two names, /sys/class/kfd/kfd being a link to
// /sys/devices/virtual/kfd/kfd.
#include "sim/kfd/paths.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace sim {
namespace {

// Without empty parts, "." and "..": false if it does not fit.
bool shorten(const char* path, char* to) {
  size_t length = 0;
  while (*path != '\0') {
    const size_t part = std::strcspn(path, "/");
    if (part == 2 && std::memcmp(path, "..", 2) == 0) {
      while (length > 0 && to[--length] != '/') {
      }
    } else if (part > 0 && !(part == 1 && *path == '.')) {
      if (length + part + 2 > kPathBytes) return false;
      to[length++] = '/';
      std::memcpy(to + length, path, part);
      length += part;
    }
    path += part;
    path += *path == '/' ? 1 : 0;
  }
  to[length] = '\0';
  return true;
}

// What follows the folder's name, or null. An empty rest is the folder itself.
const char* below(const char* path, const char* folder) {
  const size_t length = std::strlen(folder);
  if (std::strncmp(path, folder, length) != 0) return nullptr;
  return path[length] == '\0' || path[length] == '/' ? path + length : nullptr;
}

// The whole text up to `end` is a number that is written as the kernel writes it.
bool read_number(const char* text, const char* end, unsigned long limit, unsigned long* value) {
  if (text == end || (*text == '0' && text + 1 != end)) return false;
  for (const char* at = text; at != end; ++at) {
    if (*at < '0' || *at > '9') return false;
  }
  char* stop = nullptr;
  *value = std::strtoul(text, &stop, 10);
  return stop == end && *value <= limit;
}

// The number between `prefix` and the next '/' or the end.
bool number_behind(const char* text, const char* prefix, uint32_t* number) {
  const size_t length = std::strlen(prefix);
  unsigned long value = 0;
  if (std::strncmp(text, prefix, length) != 0) return false;
  text += length;
  if (!read_number(text, text + std::strcspn(text, "/"), UINT32_MAX, &value)) return false;
  *number = static_cast<uint32_t>(value);
  return true;
}

// A GPU has the file at its own function, and no partition of it has one.
bool read_used_name(KfdName* name) {
  unsigned domain = 0, bus = 0, device = 0;
  int end = 0;
  if (std::sscanf(name->path, "/sys/bus/pci/devices/%4x:%2x:%2x.0/mem_info_vram_used%n", &domain,
                  &bus, &device, &end) != 3 ||
      end == 0 || name->path[end] != '\0')
    return false;
  name->pci_domain = domain;
  name->pci_bus = bus;
  name->pci_device = device;
  return true;
}

}  // namespace

bool may_be_kfd(const char* path) {
  return std::strncmp(path, "/sys/", 5) == 0 || std::strncmp(path, "/dev/dri", 8) == 0 ||
         std::strncmp(path, "/proc/self/fdinfo/", 18) == 0;
}

KfdKind read_kfd_name(const char* path, KfdName* name) {
  name->kind = KfdKind::kOther;
  name->pid = -1;
  if (path == nullptr || !may_be_kfd(path) || !shorten(path, name->path)) return name->kind;
  if (number_behind(name->path, "/dev/dri/renderD", &name->number))
    return name->kind = KfdKind::kRender;
  if (number_behind(name->path, "/proc/self/fdinfo/", &name->number))
    return name->kind = KfdKind::kFdInfo;
  if (read_used_name(name)) return name->kind = KfdKind::kUsed;
  const char* driver = below(name->path, "/sys/class/kfd/kfd");
  if (driver == nullptr) driver = below(name->path, "/sys/devices/virtual/kfd/kfd");
  if (driver == nullptr) {
    if (below(name->path, "/sys/class/kfd") != nullptr ||
        below(name->path, "/sys/devices/virtual/kfd") != nullptr ||
        below(name->path, "/sys/class/drm") != nullptr ||
        below(name->path, "/dev/dri") != nullptr ||
        below(name->path, "/sys/module/amdgpu") != nullptr)
      name->kind = KfdKind::kFixed;
    return name->kind;
  }
  if (number_behind(driver, "/topology/nodes/", &name->number)) return name->kind = KfdKind::kNode;
  const char* process = below(driver, "/proc");
  if (process == nullptr) return name->kind = KfdKind::kFixed;
  if (*process == '\0') return name->kind = KfdKind::kProcesses;
  name->kind = KfdKind::kProcess;
  ++process;
  const char* end = process + std::strcspn(process, "/");
  unsigned long number = 0;
  if (!read_number(process, end, INT32_MAX, &number)) return name->kind;
  name->pid = static_cast<int>(number);
  constexpr const char kPrefix[] = "/vram_";
  if (std::strncmp(end, kPrefix, sizeof kPrefix - 1) != 0) return name->kind;
  const char* id = end + sizeof kPrefix - 1;
  if (!read_number(id, id + std::strlen(id), UINT32_MAX, &number)) return name->kind;
  name->gpu_id = static_cast<uint32_t>(number);
  return name->kind = KfdKind::kVram;
}

}  // namespace sim
