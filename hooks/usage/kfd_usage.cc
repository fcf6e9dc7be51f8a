// Reads KFD's sysfs; see kfd_usage.h. Nothing is kept: partitions come and go when an operator
// changes the mode, and all of this is read on cold paths only.
//
//   topology/nodes/<n>/gpu_id                     0 for a CPU
//   topology/nodes/<n>/properties                 location_id, domain
//   topology/nodes/<n>/mem_banks/<b>/properties   heap_type 1 and 2: memory of the device
//   proc/<host pid>/vram_<gpu_id>                 bytes that the process holds there
#include "hooks/usage/kfd_usage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/base/small_file.h"
#include "shim/config/identity.h"

namespace fracgpu::kfd {
namespace {

constexpr char kRoot[] = "/sys/class/kfd/kfd";
constexpr char kPrefix[] = "AMD-";
constexpr uint32_t kMaxNodes = 256;  // more than any machine has

using Path = Text<128>;
struct File {
  char text[4096];
};

bool read(const Path& path, File& file) {
  return read_small_file(path.c_str(), file.text, sizeof file.text) >= 0;
}

bool read_number(const Path& path, uint64_t& value) {
  File file;
  if (!read(path, file)) return false;
  char* end = file.text;
  errno = 0;
  value = strtoull(file.text, &end, 10);
  return errno == 0 && end != file.text;
}

// The value of a line "name value" of a properties file; `otherwise` when there is none.
uint64_t property(const File& file, const char* name, uint64_t otherwise) {
  const size_t length = strlen(name);
  for (const char* line = file.text; line != nullptr; line = strchr(line, '\n')) {
    if (*line == '\n') ++line;
    if (strncmp(line, name, length) == 0 && line[length] == ' ') {
      return strtoull(line + length, nullptr, 10);
    }
  }
  return otherwise;
}

Path node_path(uint32_t node, const char* rest) {
  Path path;
  path.format("{}/topology/nodes/{}/{}", kRoot, node, rest);
  return path;
}

Path bank_path(uint32_t node, uint32_t bank) {
  Path path;
  path.format("{}/topology/nodes/{}/mem_banks/{}/properties", kRoot, node, bank);
  return path;
}

// Calls visit(node, gpu_id) for every GPU until it returns true. False when none did.
template <typename Visit>
bool find_gpu(Visit visit) {
  for (uint32_t node = 0; node < kMaxNodes; ++node) {
    uint64_t gpu_id = 0;
    if (!read_number(node_path(node, "gpu_id"), gpu_id)) {
      if (errno == ENOENT) return false;  // nodes are numbered without gaps
      continue;                           // a device that this container may not look at
    }
    if (gpu_id != 0 && visit(node, gpu_id)) return true;
  }
  return false;
}

// `location_id` is bus << 8 | device << 3 | function, and since mid-2024 the partition << 28.
bool read_bus_id(uint32_t node, BusId& bus_id) {
  File file;
  if (!read(node_path(node, "properties"), file)) return false;
  const auto location = static_cast<uint32_t>(property(file, "location_id", 0));
  bus_id.domain = static_cast<uint32_t>(property(file, "domain", 0));
  bus_id.bus = location >> 8 & 0xff;
  bus_id.device = location >> 3 & 0x1f;
  bus_id.function = location & 7;
  bus_id.partition = static_cast<int>(location >> 28);
  return true;
}

bool gpu_id_of(const char* device_key, uint64_t& gpu_id) {
  if (!owns(device_key)) return false;
  char* end = nullptr;
  gpu_id = strtoull(device_key + strlen(kPrefix), &end, 10);
  return *end == '\0' && gpu_id != 0;
}

// Bytes that a process holds. KFD lists processes by their PIDs in the initial namespace, so in a
// private one a process does not find itself.
bool read_vram(uint32_t host_pid, const char* device_key, uint64_t& bytes) {
  uint64_t gpu_id = 0;
  errno = EINVAL;
  if (!in_host_pid_namespace() || !gpu_id_of(device_key, gpu_id)) return false;
  Path path;
  path.format("{}/proc/{}/vram_{}", kRoot, host_pid, gpu_id);
  return read_number(path, bytes);
}

}  // namespace

bool owns(const char* device_key) {
  return strncmp(device_key, kPrefix, strlen(kPrefix)) == 0;
}

bool key_of_node(uint32_t node, Key& key) {
  uint64_t gpu_id = 0;
  if (!read_number(node_path(node, "gpu_id"), gpu_id) || gpu_id == 0) return false;
  key.format("{}{}", kPrefix, gpu_id);
  return true;
}

bool key_of_index(int index, Key& key) {
  int count = 0;
  return find_gpu([&](uint32_t, uint64_t gpu_id) {
    if (count++ != index) return false;
    key.format("{}{}", kPrefix, gpu_id);
    return true;
  });
}

bool key_of_gpu_id(uint64_t gpu_id, Key& key) {
  key.format("{}{}", kPrefix, gpu_id);
  return find_gpu([&](uint32_t, uint64_t there) { return there == gpu_id; });
}

bool key_of_bdf(uint64_t bdf, Key& key) {
  BusId wanted{.domain = static_cast<uint32_t>(bdf >> 32),
               .bus = static_cast<uint32_t>(bdf >> 8 & 0xff),
               .device = static_cast<uint32_t>(bdf >> 3 & 0x1f),
               .function = static_cast<uint32_t>(bdf & 7),
               .partition = static_cast<int>(bdf >> 28 & 0xf)};
  if (wanted.partition == 0) wanted.partition = static_cast<int>(wanted.function);
  int matches = 0;
  find_gpu([&](uint32_t node, uint64_t gpu_id) {
    BusId there;
    if (read_bus_id(node, there) && wanted.selects(there)) {
      ++matches;
      key.format("{}{}", kPrefix, gpu_id);
    }
    return false;
  });
  return matches == 1;
}

// A process that uses HSA is listed; where it is not, its usage is not known.
bool bytes_of_self(const char* device_key, uint64_t& bytes) {
  return read_vram(static_cast<uint32_t>(getpid()), device_key, bytes);
}

bool bytes_of(uint32_t host_pid, const char* device_key, uint64_t& bytes) {
  if (read_vram(host_pid, device_key, bytes)) return true;
  if (errno != ENOENT) return false;
  // Not listed: it has ended. Kernels before 5.8 list no process.
  Path list;
  list.format("{}/proc", kRoot);
  bytes = 0;
  return access(list.c_str(), F_OK) == 0;
}

bool index_of(const char* device_key, int& index) {
  uint64_t wanted = 0;
  index = -1;
  return gpu_id_of(device_key, wanted) && find_gpu([&](uint32_t, uint64_t gpu_id) {
           ++index;
           return gpu_id == wanted;
         });
}

bool physical_bytes(const char* device_key, uint64_t& bytes) {
  uint64_t wanted = 0;
  if (!gpu_id_of(device_key, wanted)) return false;
  return find_gpu([&](uint32_t node, uint64_t gpu_id) {
    if (gpu_id != wanted) return false;
    bytes = 0;
    File bank;
    for (uint32_t i = 0; read(bank_path(node, i), bank); ++i) {
      const uint64_t heap = property(bank, "heap_type", 0);
      if (heap == 1 || heap == 2) bytes += property(bank, "size_in_bytes", 0);
    }
    return bytes > 0;
  });
}

bool bus_id_of(const char* device_key, BusId& bus_id) {
  uint64_t wanted = 0;
  return gpu_id_of(device_key, wanted) && find_gpu([&](uint32_t node, uint64_t gpu_id) {
           return gpu_id == wanted && read_bus_id(node, bus_id);
         });
}

bool unique_id_of(const char* device_key, uint64_t& id) {
  uint64_t wanted = 0;
  return gpu_id_of(device_key, wanted) && find_gpu([&](uint32_t node, uint64_t gpu_id) {
           File file;
           if (gpu_id != wanted || !read(node_path(node, "properties"), file)) return false;
           id = property(file, "unique_id", 0);
           return true;
         });
}

bool read_properties(const char* device_key, std::span<const Property> wanted) {
  uint64_t gpu = 0;
  return gpu_id_of(device_key, gpu) && find_gpu([&](uint32_t node, uint64_t gpu_id) {
           File file;
           if (gpu_id != gpu || !read(node_path(node, "properties"), file)) return false;
           for (const auto& [name, value] : wanted) *value = property(file, name, *value);
           return true;
         });
}

bool device_may_exist(const Selector& selector) {
  int count = 0;
  uint64_t wanted = 0;
  if (selector.kind == Selector::Kind::key && !gpu_id_of(selector.key.c_str(), wanted)) {
    return false;
  }
  return find_gpu([&](uint32_t node, uint64_t gpu_id) {
    BusId there;
    switch (selector.kind) {
      case Selector::Kind::any:
        return true;
      case Selector::Kind::index:
        return count++ == selector.index;
      case Selector::Kind::key:
        return gpu_id == wanted;
      case Selector::Kind::bus_id:
        return read_bus_id(node, there) && selector.bus_id.selects(there);
    }
    return false;
  });
}

Text<96> describe(const char* device_key) {
  Text<96> text(device_key);
  if (BusId at; bus_id_of(device_key, at)) {
    text.append(" ({:04x}:{:02x}:{:02x}.{:x} partition {})", at.domain, at.bus, at.device,
                at.function, at.partition);
  }
  return text;
}

}  // namespace fracgpu::kfd
