// The topology as KFD prints it: node 0 is the processor, each AMD device of the simulated node is
// one more. Performance counters and the processor's caches are left out, and their counts are zero
// accordingly; of a device's caches there is one of each level, without which ROCr does not start.
#include "sim/kfd/topology_files.h"

#include <algorithm>
#include <cstdio>

#include "sim/node/amd_partitions.h"

namespace sim {
namespace {

constexpr uint32_t kCores = 96, kCoreMhz = 2400, kCoreMemoryMhz = 4800;
constexpr uint64_t kHostMemory = 1ULL << 40;
constexpr uint32_t kFirstRenderMinor = 128;
constexpr uint32_t kSystemHeap = 0, kPublicHeap = 1;
constexpr uint32_t kPcie = 2, kXgmi = 11;
constexpr uint32_t kControlStack = 20480;

// What the devices of one generation have in common.
struct Chip {
  const char* name;
  uint32_t arrays, xccs, copy_engines, link_engines;  // of all partitions together
  uint32_t cus_per_array, simds_per_cu, waves_per_simd;
  uint32_t clock, memory_width, memory_clock;
  uint32_t firmware, copy_firmware, capability, debug;
  uint32_t minors;  // render nodes that the kernel sets aside for a GPU and its partitions
  bool linked;      // with its like by xGMI
  uint32_t local_memory_kib = 64;
};
constexpr Chip kMi300{.name = "ip discovery",
                      .arrays = 32,
                      .xccs = 8,
                      .copy_engines = 2,
                      .link_engines = 14,
                      .cus_per_array = 10,
                      .simds_per_cu = 4,
                      .waves_per_simd = 8,
                      .clock = 2100,
                      .memory_width = 8192,
                      .memory_clock = 1300,
                      .firmware = 166,
                      .copy_firmware = 22,
                      .capability = 746037888,
                      .debug = 1511,
                      .minors = 8,
                      .linked = true};
constexpr Chip kMi350 = [] {
  Chip chip = kMi300;
  chip.local_memory_kib = 160;  // AMD CDNA 4 architecture white paper
  chip.cus_per_array = 8;
  return chip;
}();
constexpr Chip kMi200{.name = "aldebaran",
                      .arrays = 8,
                      .xccs = 1,
                      .copy_engines = 2,
                      .link_engines = 3,
                      .cus_per_array = 16,
                      .simds_per_cu = 4,
                      .waves_per_simd = 8,
                      .clock = 1700,
                      .memory_width = 4096,
                      .memory_clock = 1600,
                      .firmware = 78,
                      .copy_firmware = 8,
                      .capability = 745742464,
                      .debug = 1495,
                      .minors = 1,
                      .linked = false};
constexpr Chip kNavi31{.name = "ip discovery",
                       .arrays = 12,
                       .xccs = 1,
                       .copy_engines = 2,
                       .link_engines = 0,
                       .cus_per_array = 8,
                       .simds_per_cu = 2,
                       .waves_per_simd = 16,
                       .clock = 2304,
                       .memory_width = 384,
                       .memory_clock = 1249,
                       .firmware = 2280,
                       .copy_firmware = 24,
                       .capability = 671588992,
                       .debug = 1511,
                       .minors = 1,
                       .linked = false};
// Of the capabilities: without it, queues' save areas are host memory (libhsakmt, src/queues.c).
constexpr uint32_t kSvmSupported = 1u << 27;

const Chip& chip_of(const DeviceRow& device) {
  if (device.gfx_target_version / 10000 == 11) return kNavi31;
  if (device.gfx_target_version == 90500) return kMi350;
  return device.gfx_target_version / 100 == 904 ? kMi300 : kMi200;
}

class Text {
 public:
  Text& add(const char* key, uint64_t value) {
    text_.append(key).append(" ").append(std::to_string(value)).append("\n");
    return *this;
  }
  // As kernels since late 2025 print it.
  Text& add_if_known(const char* key, uint64_t value) {
    return value != 0 ? add(key, value) : *this;
  }
  operator std::string() const { return text_; }

 private:
  std::string text_;
};

struct Link {
  uint32_t type, to, weight;
};

std::string link_text(uint32_t from, const Link& link) {
  const bool xgmi = link.type == kXgmi;
  return Text()
      .add("type", link.type)
      .add("version_major", 0)
      .add("version_minor", 0)
      .add("node_from", from)
      .add("node_to", link.to)
      .add("weight", link.weight)
      .add("min_latency", 0)
      .add("max_latency", 0)
      .add("min_bandwidth", xgmi ? 50000 : 312)
      .add("max_bandwidth", xgmi ? 50000 : 64000)
      .add("recommended_transfer_size", 0)
      .add("recommended_sdma_engine_id_mask", 0)
      .add("flags", 1);
}

std::string memory_text(uint32_t heap, uint64_t bytes, uint32_t width, uint32_t clock) {
  return Text()
      .add("heap_type", heap)
      .add("size_in_bytes", bytes)
      .add("flags", 0)
      .add("width", width)
      .add("mem_clk_max", clock);
}

std::string processor_text(size_t links) {
  Text text;
  text.add("cpu_cores_count", kCores).add("simd_count", 0).add("mem_banks_count", 1);
  text.add("caches_count", 0).add("io_links_count", links);
  for (const char* key : {"p2p_links_count",
                          "cpu_core_id_base",
                          "simd_id_base",
                          "max_waves_per_simd",
                          "lds_size_in_kb",
                          "gds_size_in_kb",
                          "num_gws",
                          "wave_front_size",
                          "array_count",
                          "simd_arrays_per_engine",
                          "cu_per_simd_array",
                          "simd_per_cu",
                          "max_slots_scratch_cu",
                          "gfx_target_version",
                          "vendor_id",
                          "device_id",
                          "location_id",
                          "domain",
                          "drm_render_minor",
                          "hive_id",
                          "num_sdma_engines",
                          "num_sdma_xgmi_engines",
                          "num_sdma_queues_per_engine",
                          "num_cp_queues"})
    text.add(key, 0);
  return text.add("max_engine_clk_ccompute", kCoreMhz);
}

// Of levels 1 and 2; what KFD makes of more detail is of no matter here.
constexpr uint32_t kCacheKib[] = {16, 8192};
constexpr uint32_t kDataCacheOfSimds = 9;

uint32_t first_simd(const DeviceRow& device) {
  return 0x80000000u + 8 * device.kfd_node;
}

std::string cache_text(const DeviceRow& device, size_t number) {
  const std::string text = Text()
                               .add("processor_id_low", first_simd(device))
                               .add("level", number + 1)
                               .add("size", kCacheKib[number])
                               .add("cache_line_size", 64)
                               .add("cache_lines_per_tag", 1)
                               .add("association", 16)
                               .add("latency", 0)
                               .add("type", kDataCacheOfSimds);
  return text + "sibling_map 1\n";
}

std::string device_text(const DeviceRow& device, size_t links, uint32_t render_minor,
                        uint64_t hive) {
  const Chip& chip = chip_of(device);
  const uint32_t parts = device.partitions;
  const uint32_t engines = (chip.copy_engines + chip.link_engines) / parts;
  const uint32_t copy_engines = std::min(engines, chip.copy_engines);
  return Text()
      .add("cpu_cores_count", 0)
      .add("simd_count", chip.simds_per_cu * device.multiprocessors)
      .add("mem_banks_count", 1)
      .add("caches_count", std::size(kCacheKib))
      .add("io_links_count", links)
      .add("p2p_links_count", 0)
      .add("cpu_core_id_base", 0)
      .add("simd_id_base", first_simd(device))
      .add("max_waves_per_simd", chip.waves_per_simd)
      .add("lds_size_in_kb", chip.local_memory_kib)
      .add("gds_size_in_kb", 0)
      .add("num_gws", 64)
      .add("wave_front_size", 64)
      .add("array_count", chip.arrays / parts)
      .add("simd_arrays_per_engine", 1)
      .add("cu_per_simd_array", chip.cus_per_array)
      .add("simd_per_cu", chip.simds_per_cu)
      .add("max_slots_scratch_cu", 32)
      .add("gfx_target_version", device.gfx_target_version)
      .add("vendor_id", device.pci_id & 0xffff)
      .add("device_id", device.pci_id >> 16)
      .add("location_id", device.location_id)
      .add("domain", device.pci_domain)
      .add("drm_render_minor", render_minor)
      .add("hive_id", hive)
      .add("num_sdma_engines", copy_engines)
      .add("num_sdma_xgmi_engines", engines - copy_engines)
      .add("num_sdma_queues_per_engine", 8)
      .add("num_cp_queues", 24)
      .add_if_known("cwsr_size", device.cwsr_size)
      .add_if_known("ctl_stack_size", device.cwsr_size != 0 ? kControlStack : 0)
      .add("max_engine_clk_fcompute", chip.clock)
      // The kernel prints zero here on every GPU; sizes are in mem_banks.
      .add("local_mem_size", 0)
      .add("fw_version", chip.firmware)
      .add("capability",
           device.svm != 0 ? chip.capability | kSvmSupported : chip.capability & ~kSvmSupported)
      .add("debug_prop", chip.debug)
      .add("sdma_fw_version", chip.copy_firmware)
      .add("unique_id", device.unique_id)
      .add("num_xcc", std::max(chip.xccs / parts, 1u))
      .add("max_engine_clk_ccompute", kCoreMhz);
}

}  // namespace

uint32_t render_minor(const NodeFile& file, int dev) {
  uint32_t first = kFirstRenderMinor;
  for (uint32_t i = 0; i < file.header.device_count; ++i) {
    const DeviceRow& other = file.device[i];
    if (other.vendor == Vendor::kAmd && other.partition == 0 &&
        other.board < file.device[dev].board)
      first += chip_of(other).minors;
  }
  return first + file.device[dev].partition;
}

namespace {

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text + "\n";
}

// amdgpu_gfx.c, amdgpu_gmc.c and amdgpu_xcp.c: the GPU's first device alone has these, and what is
// available of compute modes is what goes with the memory mode of now.
void add_modes(const NodeFile& file, const DeviceRow& device, uint32_t minor,
               std::vector<std::pair<std::string, std::string>>* files) {
  const BoardRow& board = file.board[device.board];
  if (board.divisible == 0) return;
  std::vector<std::string> compute, available, memory;
  for (const uint32_t partitions : compute_modes(device)) {
    compute.push_back(compute_mode_name(partitions));
    if (goes_with(device, partitions, board.ranges)) available.push_back(compute.back());
  }
  for (const uint32_t ranges : memory_modes(device)) memory.push_back(memory_mode_name(ranges));
  const std::string folder = "/sys/class/drm/renderD" + std::to_string(minor) + "/device/";
  files->emplace_back(folder + "current_compute_partition",
                      compute_mode_name(board.partitions) + "\n");
  files->emplace_back(folder + "available_compute_partition", list_of(available));
  files->emplace_back(folder + "current_memory_partition", memory_mode_name(board.ranges) + "\n");
  files->emplace_back(folder + "available_memory_partition", list_of(memory));
  files->emplace_back(folder + "compute_partition_config/supported_xcp_configs", list_of(compute));
}

}  // namespace

std::vector<std::pair<std::string, std::string>> kfd_files(const NodeFile& file) {
  std::vector<std::pair<std::string, std::string>> files;
  const std::string kfd = "/sys/devices/virtual/kfd/kfd/";
  const auto add_node = [&](uint32_t number, const std::string& id, const std::string& name,
                            const std::string& properties, const std::string& memory,
                            const std::vector<Link>& links) {
    const std::string folder = kfd + "topology/nodes/" + std::to_string(number) + "/";
    files.emplace_back(folder + "gpu_id", id + "\n");
    files.emplace_back(folder + "name", name + "\n");
    files.emplace_back(folder + "properties", properties);
    files.emplace_back(folder + "mem_banks/0/properties", memory);
    for (const char* empty : {"caches/", "io_links/", "p2p_links/", "perf/"})
      files.emplace_back(folder + empty, "");
    for (size_t i = 0; i < links.size(); ++i) {
      files.emplace_back(folder + "io_links/" + std::to_string(i) + "/properties",
                         link_text(number, links[i]));
    }
  };

  std::vector<const DeviceRow*> devices;
  std::vector<Link> from_processor;
  uint64_t hive = 0;
  for (uint32_t i = 0; i < file.header.device_count; ++i) {
    const DeviceRow& device = file.device[i];
    if (device.vendor == Vendor::kAmd && device.absent == 0) devices.push_back(&device);
  }
  // Partitions that came later have rows at the end.
  std::ranges::stable_sort(devices, {}, [](const DeviceRow* device) {
    return std::pair(device->board, device->partition);
  });
  for (const DeviceRow* device : devices) {
    from_processor.push_back({kPcie, device->kfd_node, 20});
    if (chip_of(*device).linked && hive == 0) hive = device->unique_id ^ 0x5a5a5a5a5a5a5a5aULL;
  }
  files.emplace_back(kfd + "topology/generation_id",
                     std::to_string(2 + file.header.generation.load()) + "\n");
  files.emplace_back(kfd + "topology/system_properties", Text()
                                                             .add("platform_oem", 35498446626881)
                                                             .add("platform_id", 71791775140929)
                                                             .add("platform_rev", 2));
  files.emplace_back(kfd + "proc/", "");
  files.emplace_back("/sys/class/drm/", "");  // no display; tools that look for one find none
  files.emplace_back("/sys/module/amdgpu/version", "6.12.12\n");
  files.emplace_back("/sys/module/amdgpu/initstate", "live\n");
  add_node(0, "0", "", processor_text(from_processor.size()),
           memory_text(kSystemHeap, kHostMemory, 64, kCoreMemoryMhz), from_processor);

  for (const DeviceRow* device : devices) {
    const Chip& chip = chip_of(*device);
    const uint32_t minor = render_minor(file, static_cast<int>(device - file.device));
    files.emplace_back("/dev/dri/renderD" + std::to_string(minor), "\n");
    if (device->partition == 0) {
      char place[32];
      std::snprintf(place, sizeof place, "%04x:%02x:%02x.0", device->pci_domain, device->pci_bus,
                    device->pci_device);
      // Answered when it is opened.
      files.emplace_back("/sys/bus/pci/devices/" + std::string(place) + "/mem_info_vram_used", "");
      add_modes(file, *device, minor, &files);
    }
    std::vector<Link> links{{kPcie, 0, 20}};
    for (const DeviceRow* other : devices) {
      if (other == device || !chip.linked || !chip_of(*other).linked) continue;
      // Between partitions of one GPU the way is shorter.
      links.push_back({kXgmi, other->kfd_node, other->pci_bus == device->pci_bus ? 13u : 15u});
    }
    add_node(device->kfd_node, std::to_string(device->kfd_gpu_id), chip.name,
             device_text(*device, links.size(), minor, chip.linked ? hive : 0),
             memory_text(kPublicHeap, device->total, chip.memory_width, chip.memory_clock), links);
    for (size_t i = 0; i < std::size(kCacheKib); ++i) {
      files.emplace_back(kfd + "topology/nodes/" + std::to_string(device->kfd_node) + "/caches/" +
                             std::to_string(i) + "/properties",
                         cache_text(*device, i));
    }
  }
  return files;
}

}  // namespace sim
