// Reads KFD's topology; see kfd_topology.h.
//
//   topology/nodes/<n>/gpu_id                     0 for a CPU
//   topology/nodes/<n>/properties                 location_id, domain, drm_render_minor, unique_id
//   topology/nodes/<n>/mem_banks/<b>/properties   heap_type 1 and 2: memory of the device
#include "hooks/usage/kfd_topology.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "shim/base/small_file.h"

namespace fracgpu::kfd {
namespace {

constexpr char kPrefix[] = "AMD-";
constexpr uint32_t kMaxNodes = 256;  // more than any machine has

using Path = Text<128>;
struct File {
  char text[4096];
};

bool read(const Path& path, File& file) {
  return read_small_file(path.c_str(), file.text, sizeof file.text) >= 0;
}

// What follows `name` and the separator, where a line begins with them; null if none does.
const char* value_of(const File& file, const char* name, char separator) {
  const size_t length = strlen(name);
  for (const char* line = file.text; line != nullptr; line = strchr(line, '\n')) {
    if (*line == '\n') ++line;
    if (strncmp(line, name, length) == 0 && line[length] == separator) return line + length + 1;
  }
  return nullptr;
}

// The value of a line "name value" of a properties file; `otherwise` if there is none.
uint64_t property(const File& file, const char* name, uint64_t otherwise = 0) {
  const char* const value = value_of(file, name, ' ');
  return value != nullptr ? strtoull(value, nullptr, 10) : otherwise;
}

// The value of a line "NAME=value" of a uevent file; empty if there is none.
std::string_view event_property(const File& file, const char* name) {
  const char* const value = value_of(file, name, '=');
  return value != nullptr ? std::string_view(value, strcspn(value, "\n")) : std::string_view();
}

Path node_path(uint32_t node, const char* rest) {
  Path path;
  path.format("{}/topology/nodes/{}/{}", kRoot, node, rest);
  return path;
}

// False for a processor, and for a node that this process may not read.
bool read_gpu(uint32_t node, Gpu& gpu) {
  File file;
  if (!read(node_path(node, "gpu_id"), file)) return false;
  gpu.node = node;
  gpu.gpu_id = static_cast<uint32_t>(strtoul(file.text, nullptr, 10));
  if (gpu.gpu_id == 0 || !read(node_path(node, "properties"), file)) {
    errno = 0;
    return false;
  }
  gpu.render_minor = static_cast<uint32_t>(property(file, "drm_render_minor"));
  gpu.unique_id = property(file, "unique_id");
  // bus << 8 | device << 3 | function, and since mid-2024 the partition << 28.
  const auto location = static_cast<uint32_t>(property(file, "location_id"));
  gpu.bus_id = {.domain = static_cast<uint32_t>(property(file, "domain")),
                .bus = location >> 8 & 0xff,
                .device = location >> 3 & 0x1f,
                .function = location & 7,
                .partition = static_cast<int>(location >> 28)};
  return true;
}

// The memory of the GPU at a bus id in bytes, as amdgpu reports it, also without KFD.
bool read_total(const BusId& at, uint64_t& bytes) {
  Path path;
  path.format("/sys/bus/pci/devices/{:04x}:{:02x}:{:02x}.{:x}/mem_info_vram_total", at.domain,
              at.bus, at.device, at.function);
  File file;
  if (!read(path, file)) return false;
  bytes = strtoull(file.text, nullptr, 10);
  return bytes > 0;
}

// The sort key of devices. The partition counts only as far as it is in the function.
uint64_t place_of(const Gpu& gpu) {
  const BusId& at = gpu.bus_id;
  return uint64_t{at.domain} << 32 | at.bus << 8 | at.device << 3 | at.function;
}

}  // namespace

uint64_t Gpu::physical_bytes() const {
  uint64_t bytes = 0;
  File bank;
  Path rest;
  for (uint32_t i = 0;; ++i) {
    rest.format("mem_banks/{}/properties", i);
    if (!read(node_path(node, rest.c_str()), bank)) return bytes;
    const uint64_t heap = property(bank, "heap_type");
    if (heap == 1 || heap == 2) bytes += property(bank, "size_in_bytes");
  }
}

bool Gpu::has_render_node() const {
  Path path;
  path.format("/dev/dri/renderD{}", render_minor);
  return access(path.c_str(), F_OK) == 0;
}

GpuList::GpuList() {
  for (uint32_t node = 0; node < kMaxNodes && count_ < kMost; ++node) {
    Gpu found;
    errno = 0;
    if (!read_gpu(node, found)) {
      if (errno == ENOENT) break;  // nodes are numbered without gaps
      continue;
    }
    // Among devices with one bus id, such as partitions, the first one found comes first.
    int at = count_++;
    for (; at > 0 && place_of(gpus_[at - 1]) > place_of(found); --at) gpus_[at] = gpus_[at - 1];
    gpus_[at] = found;
  }
  tell_partitions();
}

// Kernels before mid-2024 make partitions functions of one device. Functions that are separate
// GPUs, such as virtual ones, do not share a UUID.
void GpuList::tell_partitions() {
  for (int i = 0; i < count_; ++i) {
    Gpu& gpu = gpus_[i];
    const uint64_t place = place_of(gpu) - gpu.bus_id.function;
    gpu.bus_id.function_is_partition = std::any_of(begin(), end(), [&](const Gpu& other) {
      return gpu.unique_id != 0 && other.unique_id == gpu.unique_id &&
             other.bus_id.function != gpu.bus_id.function &&
             place_of(other) - other.bus_id.function == place;
    });
  }
}

const Gpu* GpuList::find(uint64_t gpu_id) const {
  const Gpu* const found =
      std::find_if(begin(), end(), [&](const Gpu& gpu) { return gpu.gpu_id == gpu_id; });
  return found != end() ? found : nullptr;
}

const Gpu* GpuList::find(const char* device_key) const {
  uint64_t gpu_id = 0;
  return gpu_id_of(device_key, gpu_id) ? find(gpu_id) : nullptr;
}

bool owns(const char* device_key) {
  constexpr size_t kUuidLength = 20;
  return strncmp(device_key, kPrefix, strlen(kPrefix)) == 0 ||
         (strncmp(device_key, "GPU-", 4) == 0 && strlen(device_key) == kUuidLength);
}

bool gpu_id_of(const char* device_key, uint64_t& gpu_id) {
  if (strncmp(device_key, kPrefix, strlen(kPrefix)) != 0) return false;
  char* end = nullptr;
  gpu_id = strtoull(device_key + strlen(kPrefix), &end, 10);
  return *end == '\0' && gpu_id != 0;
}

bool key_of_gpu_id(uint64_t gpu_id, Key& key) {
  const GpuList gpus;
  const Gpu* const gpu = gpus.find(gpu_id);
  if (gpu != nullptr) key = gpu->key();
  return gpu != nullptr;
}

bool key_of_bdf(uint64_t bdf, Key& key) {
  BusId wanted{.domain = static_cast<uint32_t>(bdf >> 32),
               .bus = static_cast<uint32_t>(bdf >> 8 & 0xff),
               .device = static_cast<uint32_t>(bdf >> 3 & 0x1f),
               .function = static_cast<uint32_t>(bdf & 7),
               .partition = static_cast<int>(bdf >> 28 & 0xf)};
  if (wanted.partition == 0) wanted.partition = static_cast<int>(wanted.function);
  int matches = 0;
  for (const GpuList gpus; const Gpu& gpu : gpus) {
    if (!wanted.selects(gpu.bus_id)) continue;
    ++matches;
    key = gpu.key();
  }
  return matches == 1;
}

bool key_of_drm_node(uint32_t minor, Key& key) {
  const GpuList gpus;
  for (const Gpu& gpu : gpus) {
    if (gpu.render_minor != minor) continue;
    key = gpu.key();
    return true;
  }
  Path path;
  path.format("/sys/dev/char/226:{}/device/uevent", minor);
  File file;
  if (!read(path, file) || event_property(file, "DRIVER") != "amdgpu") return false;
  const std::string_view place = event_property(file, "PCI_SLOT_NAME");
  BusId at;
  if (!at.parse(place)) return false;
  const auto is_there = [&](const Gpu& gpu) { return at.selects(gpu.bus_id); };
  // The primary node of a divided GPU stands for none of its partitions.
  if (std::count_if(gpus.begin(), gpus.end(), is_there) == 1) {
    key = std::find_if(gpus.begin(), gpus.end(), is_there)->key();
  } else {
    key.assign(kPrefix);
    key.append("{}", place);
  }
  return true;
}

bool uuid_of(const char* device_key, Text<64>& uuid) {
  const GpuList gpus;
  const Gpu* const gpu = gpus.find(device_key);
  if (gpu == nullptr || gpu->unique_id == 0) return false;
  uuid = gpu->uuid();
  return true;
}

bool index_of(const char* device_key, int& index) {
  const GpuList gpus;
  const Gpu* const gpu = gpus.find(device_key);
  if (gpu != nullptr) index = static_cast<int>(gpu - gpus.begin());
  return gpu != nullptr;
}

bool physical_bytes(const char* device_key, uint64_t& bytes) {
  const GpuList gpus;
  const Gpu* const gpu = gpus.find(device_key);
  uint64_t found = gpu != nullptr ? gpu->physical_bytes() : 0;
  BusId at;
  const bool is_hidden = gpu == nullptr && bus_id_of(device_key, at);
  if (found == 0 && !(is_hidden && read_total(at, found))) return false;
  bytes = found;
  return true;
}

bool bus_id_of(const char* device_key, BusId& bus_id) {
  const GpuList gpus;
  const Gpu* const gpu = gpus.find(device_key);
  if (gpu != nullptr) bus_id = gpu->bus_id;
  return gpu != nullptr || (owns(device_key) && bus_id.parse(device_key + strlen(kPrefix)));
}

bool device_may_exist(const Selector& selector) {
  const GpuList gpus;
  switch (selector.kind) {
    case Selector::Kind::any:
      return gpus.count() > 0;
    case Selector::Kind::index:
      return selector.index < gpus.count();
    case Selector::Kind::key:
      return gpus.find(selector.key.c_str()) != nullptr ||
             std::any_of(gpus.begin(), gpus.end(),
                         [&](const Gpu& gpu) { return gpu.uuid().view() == selector.key.view(); });
    case Selector::Kind::bus_id:
      // Partitions are KFD's alone.
      if (uint64_t bytes = 0; selector.bus_id.partition < 0 && read_total(selector.bus_id, bytes))
        return true;
      return std::any_of(gpus.begin(), gpus.end(),
                         [&](const Gpu& gpu) { return selector.bus_id.selects(gpu.bus_id); });
  }
  return false;
}

bool read_properties(const char* device_key, std::span<const Property> wanted) {
  const GpuList gpus;
  const Gpu* const gpu = gpus.find(device_key);
  File file;
  if (gpu == nullptr || !read(node_path(gpu->node, "properties"), file)) return false;
  for (const auto& [name, value] : wanted) *value = property(file, name, *value);
  return true;
}

Text<96> describe(const char* device_key) {
  Text<96> text(device_key);
  if (BusId at; bus_id_of(device_key, at) && at.partition >= 0) {
    text.append(" ({:04x}:{:02x}:{:02x}.{:x} partition {})", at.domain, at.bus, at.device,
                at.function, at.partition);
  }
  return text;
}

}  // namespace fracgpu::kfd
