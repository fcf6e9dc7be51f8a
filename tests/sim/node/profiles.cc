// The hardware profiles of the simulated node, by name, with an optional count in front
// ("8xh100-80gb") and several joined by '+'. Sizes are those that the vendor's tools show for the
// real product, rounded down to whole 2 MiB pages. Context sizes are of the order seen with lazy
// loading on each generation; on AMD, what the runtime takes at a process's first use of a device.
//
// A partitioned AMD GPU is a device for each partition, and kernels differ in how they tell
// partitions apart; the name's end says which kernel is meant:
//   none   the partition stands in bits 31:28 of location_id, unique_id is the board's (mid-2024
//   on) -fn    the partition stands in the PCI function, unique_id is the board's (older 6.x) -xcp
//   as none, and each partition has a unique_id of its own (the newest)
//
// What else is peculiar to a machine's KFD stands behind '@', for the whole node, joined by ',':
//   reversed       it has probed the GPUs against the order of their bus ids
//   underflow      of an APU before "drm/amdgpu: Fix vram_usage underflow" (amd-gfx, 14 Oct 2025):
//                  host memory that is freed is subtracted from vram_<gpu_id>, which is printed
//                  without a sign
//   unlists-first  a process that ends is not listed any more before its memory is freed
//                  (kfd_process_wq_release)
//   unlists-late   its memory is free at once, and it stays listed, with what it had, for as long
//   as
//                  memory would linger
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "sim/node/amd_partitions.h"
#include "sim/node/mig.h"

namespace sim {
namespace {

struct Profile {
  const char* key;
  const char* name;
  uint64_t total_mib;
  uint64_t context_mib;
  uint32_t major, minor, multiprocessors, pci_id, pci_subsystem;
  uint32_t gfx_target_version = 0;  // 0: NVIDIA
  uint32_t partitions = 1;
  bool svm = false;
  uint32_t cwsr_kib = 0;
  uint64_t carve_out_mib = 0;
  uint64_t nvml_total_mib = 0;  // 0: as much as CUDA gives
  uint64_t nvml_reserved_mib = 0;
  bool frame_buffer = true;
};

// What h100-80gb-mig is divided into: two of a kind, so that names alone do not tell them apart.
// Their places give the ids 2, 3, 9 and 10.
struct MigInstance {
  const char* name;
  uint32_t start;
};
constexpr MigInstance kMigInstances[] = {
    {"3g.40gb", 4}, {"2g.20gb", 0}, {"1g.10gb", 2}, {"1g.10gb", 3}};
constexpr int kMigCount = sizeof kMigInstances / sizeof kMigInstances[0];

// A GPU that can be divided is named by its profile and one of these. Its GPU instances' rows are
// behind it; those that h100-80gb-mig has no need of at first are behind all the others, where they
// change no number.
enum class Mig { kNone, kOff, kEmpty, kDivided };
constexpr std::pair<std::string_view, Mig> kMigEnds[] = {
    {"-mig-off", Mig::kOff}, {"-mig-empty", Mig::kEmpty}, {"-mig", Mig::kDivided}};

constexpr const char* kMi300x = "AMD Instinct MI300X";
constexpr const char* kMi325x = "AMD Instinct MI325X";
constexpr const char* kMi355x = "AMD Instinct MI355X";
constexpr uint32_t kMi300xId = 0x74a11002, kMi210Id = 0x740f1002;
constexpr uint32_t kMi325xId = 0x74a51002, kMi355xId = 0x75a31002;  // amdgpu.ids of libdrm

constexpr Profile kProfiles[] = {
    {"a30", "NVIDIA A30", 24062, 414, 8, 0, 56, 0x20b710de, 0x153210de},
    {"a100-40gb", "NVIDIA A100-SXM4-40GB", 40960, 414, 8, 0, 108, 0x20b010de, 0x134f10de},
    {"a100-80gb", "NVIDIA A100-SXM4-80GB", 81920, 414, 8, 0, 108, 0x20b210de, 0x147f10de},
    {"h100-80gb", "NVIDIA H100 80GB HBM3", 81558, 500, 9, 0, 132, 0x233010de, 0x16c110de},
    {"h200", "NVIDIA H200", 143770, 520, 9, 0, 132, 0x233510de, 0x18be10de},
    {"b200", "NVIDIA B200", 182642, 600, 10, 0, 148, 0x290110de, 0x199910de},
    {"gb200", "NVIDIA GB200", 188416, 600, 10, 0, 152, 0x294110de, 0x204610de},
    // NVML's total and CUDA's differ by what the driver keeps (unslothai/unsloth-zoo PR 1053:
    // 49,140 and 48,509 MiB). How much of it NVML calls reserved is not public: here a little less.
    {"rtx6000-ada", "NVIDIA RTX 6000 Ada Generation", 48508, 370, 8, 9, 142, 0x26b110de, 0x16a110de,
     0, 1, false, 0, 0, 49140, 600},
    // Sizes and context by ggml-org/llama.cpp PR 23604.
    {"rtx-pro-6000", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 97247, 555, 12, 0, 188,
     0x2bb110de, 0x204b10de, 0, 1, false, 0, 0, 97887, 640},
    // Its memory is the machine's, and NVML tells no total (NVIDIA DGX Spark's documentation).
    {"gb10", "NVIDIA GB10", 122572, 300, 12, 1, 48, 0x2e1210de, 0x21ec10de, 0, 1, false, 0, 0, 0, 0,
     false},
    {"tiny", "Simulated Tiny GPU", 1024, 64, 9, 0, 16, 0x1fff10de, 0x000010de},
    {"mi300x", kMi300x, 196592, 1, 9, 4, 304, kMi300xId, 0x74a11002, 90402, 1, true},
    {"mi300x-dpx", kMi300x, 98296, 1, 9, 4, 152, kMi300xId, 0x74a11002, 90402, 2, true},
    {"mi300x-qpx", kMi300x, 49148, 1, 9, 4, 76, kMi300xId, 0x74a11002, 90402, 4, true},
    {"mi300x-cpx-nps1", kMi300x, 24574, 1, 9, 4, 38, kMi300xId, 0x74a11002, 90402, 8, true},
    {"mi300x-cpx-nps4", kMi300x, 24574, 1, 9, 4, 38, kMi300xId, 0x74a11002, 90402, 8, true},
    // As MI300X with 256 GB, of which as much is missing as there.
    {"mi325x", kMi325x, 262128, 1, 9, 4, 304, kMi325xId, 0x74a51002, 90402, 1, true},
    {"mi325x-cpx-nps4", kMi325x, 32766, 1, 9, 4, 38, kMi325xId, 0x74a51002, 90402, 8, true},
    // 309,220,868,096 bytes, by outputs of rocm-smi.
    {"mi355x", kMi355x, 294896, 1, 9, 5, 256, kMi355xId, 0x75a31002, 90500, 1, true},
    {"mi355x-cpx-nps2", kMi355x, 36862, 1, 9, 5, 32, kMi355xId, 0x75a31002, 90500, 8, true},
    {"mi210", "AMD Instinct MI210", 65520, 1, 9, 0, 104, kMi210Id, 0x0c341002, 90010, 1, true},
    // One of the two devices that each MI250X is.
    {"mi250x", "AMD Instinct MI250X", 65520, 1, 9, 0, 110, 0x740c1002, 0x0b0c1002, 90010, 1, true},
    {"gfx1100", "AMD Radeon RX 7900 XTX", 24560, 1, 11, 0, 96, 0x744c1002, 0x79051eae, 110000, 1,
     true},
    // Of a generation that HIP 5.2 knows, which it refuses to be of MI300X; partitions of it are
    // ours. Its kernel has no shared virtual memory, so that queues' save areas are on the host;
    // that of -svm has it, and the newer one of -cwsr tells how large they are too, which is larger
    // than what older runtimes work out for themselves.
    {"tiny-amd", "Simulated Tiny AMD GPU", 1024, 1, 9, 0, 16, kMi210Id, 0x00001002, 90010},
    // As Strix Halo, of whose 110 GiB AMD's tools call 512 MiB VRAM (rocm-systems PR 8475).
    {"tiny-apu", "Simulated Tiny APU", 1024, 1, 9, 0, 16, kMi210Id, 0x00001002, 90010, 1, false, 0,
     64},
    {"tiny-cpx", "Simulated Tiny AMD GPU", 1024, 1, 9, 0, 16, kMi210Id, 0x00001002, 90010, 8},
    {"tiny-svm", "Simulated Tiny AMD GPU", 1024, 1, 9, 0, 16, kMi210Id, 0x00001002, 90010, 1, true},
    {"tiny-cwsr", "Simulated Tiny AMD GPU", 1024, 1, 9, 0, 16, kMi210Id, 0x00001002, 90010, 1, true,
     20480},
};
// A tenant's sum on one device is at most the device, so that a tally holds any of them.
static_assert(std::ranges::all_of(kProfiles, [](const Profile& profile) {
  return (profile.total_mib << 20) <= kMaxDeviceBytes;
}));

enum class Naming { kLocation, kFunction, kOwnUniqueId };

// Stable between runs, different between profiles and numbers: FNV-1a.
uint64_t fnv(std::string_view text, uint64_t number, uint64_t start = 0) {
  uint64_t hash = (start != 0 ? start : 0xcbf29ce484222325ULL + number * 0x9e3779b97f4a7c15ULL);
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

void set_uuid(DeviceRow* device, std::string_view profile, int index) {
  uint64_t hash = 0;
  for (int half = 0; half < 2; ++half) {
    hash = fnv(profile, static_cast<uint64_t>(index), hash);
    for (int i = 0; i < 8; ++i)
      device->uuid[half * 8 + i] = static_cast<unsigned char>(hash >> (8 * i));
  }
  device->uuid[6] = static_cast<unsigned char>((device->uuid[6] & 0x0f) | 0x40);
  device->uuid[8] = static_cast<unsigned char>((device->uuid[8] & 0x3f) | 0x80);
}

// A row that is reserved for a GPU instance of the GPU.
void reserve_mig_row(NodeFile* file, int row, int gpu) {
  std::memcpy(static_cast<void*>(&file->device[row]), &file->device[gpu], sizeof(DeviceRow));
  file->device[row].mig_card = 0;
  file->device[row].mig_mode.store(0);
  file->device[row].mig_parent = static_cast<uint32_t>(gpu) + 1;
}

void divide(NodeFile* file, int gpu, std::string_view profile) {
  const MigCard& card = *mig_card(file->device[gpu].mig_card);
  for (int i = 0; i < kMigCount; ++i) {
    const MigProfile& made = *card.by_name(kMigInstances[i].name);
    const int row = gpu + 1 + i;
    put_gpu_instance(file, gpu, row, made, kMigInstances[i].start);
    put_compute_instance(file, row, 0, made.slices, 0);
    set_uuid(&file->device[row], profile, 100 * (gpu + 1) + i);
    std::memcpy(file->device[row].compute[0].uuid, file->device[row].uuid, 16);
  }
}

// A device's identity on AMD. `board` counts the GPUs of the node, `partition` the parts of one.
void set_amd_identity(NodeFile* file, int dev, std::string_view profile, Naming naming, int board,
                      uint32_t partition) {
  DeviceRow& device = file->device[dev];
  device.partition = partition;
  device.location_id = device.pci_bus << 8 | device.pci_device << 3;
  device.location_id |= naming == Naming::kFunction ? partition : partition << 28;
  const auto number = static_cast<uint64_t>(board);
  const bool own = naming == Naming::kOwnUniqueId;
  device.unique_id = fnv(profile, number + (own ? 100 * (partition + 1) : 0)) | 1;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx",
                static_cast<unsigned long long>(device.unique_id));
  std::memcpy(device.uuid, digits, sizeof device.uuid);
  // 16 bits of a hash, as the kernel makes it, and the next number when two devices meet.
  const auto taken = [&](uint32_t id) {
    return id == 0 || std::any_of(file->device, file->device + dev,
                                  [id](const DeviceRow& other) { return other.kfd_gpu_id == id; });
  };
  auto id = static_cast<uint32_t>(fnv(profile, number * 16 + partition) >> 40 & 0xffff);
  while (taken(id)) id = (id + 1) & 0xffff;
  device.kfd_gpu_id = id;
}

const Profile* find(std::string_view key, Naming* naming) {
  *naming = Naming::kLocation;
  const bool function = key.ends_with("-fn"), own = key.ends_with("-xcp");
  if (function || own) {
    *naming = function ? Naming::kFunction : Naming::kOwnUniqueId;
    key.remove_suffix(function ? 3 : 4);
  }
  for (const Profile& profile : kProfiles) {
    if (key == profile.key)
      return (function || own) && profile.partitions == 1 ? nullptr : &profile;
  }
  return nullptr;
}

// Adds the devices of one profile with its count, or refuses.
bool add(NodeFile* file, std::string_view text, const NodeOptions& options, int* boards) {
  long count = 1;
  std::string_view key = text;
  const size_t cross = text.find('x');
  if (cross != std::string_view::npos && cross > 0 &&
      text.substr(0, cross).find_first_not_of("0123456789") == std::string_view::npos) {
    count = std::strtol(std::string(text.substr(0, cross)).c_str(), nullptr, 10);
    key = text.substr(cross + 1);
  }
  Naming naming;
  Mig mig = Mig::kNone;
  for (const auto& [end, meaning] : kMigEnds) {
    if (mig != Mig::kNone || !key.ends_with(end)) continue;
    key.remove_suffix(end.size());
    mig = meaning;
  }
  const Profile* found = find(key, &naming);
  const MigCard* card = mig != Mig::kNone ? mig_card(key) : nullptr;
  if (mig != Mig::kNone && (card == nullptr || options.total_mib >= 0)) return false;
  if (mig == Mig::kDivided && key != "h100-80gb") return false;
  if (found == nullptr || count < 1 || count > kMaxDevices) return false;
  const bool amd = found->gfx_target_version != 0;
  const std::string_view made = found->key;
  const auto rounded = [amd](int64_t chosen, uint64_t fallback) {
    const uint64_t mib = chosen >= 0 ? static_cast<uint64_t>(chosen) : fallback;
    const uint64_t page = amd ? kGrain : kPage;
    return ((mib << 20) + page - 1) / page * page;
  };
  const int mig_rows = card == nullptr        ? 0
                       : mig == Mig::kDivided ? kMigCount
                                              : static_cast<int>(card->slices);
  const int rows = static_cast<int>(found->partitions) + mig_rows;
  const int devices = static_cast<int>(count) * rows;
  const auto first = static_cast<int>(file->header.device_count);
  if (first + devices > kMaxDevices) return false;
  for (int i = 0; i<devices; i += mig_rows> 0 ? rows : 1) {
    DeviceRow& device = file->device[first + i];
    const auto partition = static_cast<uint32_t>(i) % found->partitions;
    const int board = *boards + i / rows;
    std::strncpy(device.name, found->name, sizeof device.name - 1);
    device.pci_domain = static_cast<uint32_t>(board) / 16;
    device.pci_bus = 0x18 + 0x0c * (static_cast<uint32_t>(board) % 16);
    device.pci_device = 0;
    device.pci_id = found->pci_id;
    device.pci_subsystem = found->pci_subsystem;
    device.major = found->major;
    device.minor = found->minor;
    device.multiprocessors = found->multiprocessors;
    device.total = rounded(options.total_mib, found->total_mib);
    if (device.total > kMaxDeviceBytes) return false;
    device.nvml_total = found->nvml_total_mib != 0 && options.total_mib < 0
                            ? found->nvml_total_mib << 20
                            : device.total;
    device.nvml_reserved = found->nvml_reserved_mib << 20;
    device.frame_buffer = found->frame_buffer;
    device.context_bytes = rounded(options.context_mib, found->context_mib);
    device.vendor = amd ? Vendor::kAmd : Vendor::kNvidia;
    device.gfx_target_version = found->gfx_target_version;
    device.svm = found->svm ? 1 : 0;
    device.cwsr_size = found->cwsr_kib << 10;
    device.carve_out = found->carve_out_mib << 20;
    device.board = static_cast<uint32_t>(board);
    device.memory_ranges = made.ends_with("-nps4") ? 4 : made.ends_with("-nps2") ? 2 : 1;
    if (amd) {
      device.partitions = found->partitions;
      set_amd_identity(file, first + i, text, naming, board, partition);
    } else {
      set_uuid(&device, text, board);
    }
    if (card == nullptr) continue;
    device.mig_card = mig_card_number(*card);
    device.mig_mode.store(mig != Mig::kOff ? 1 : 0);
    device.mig_mode_pending.store(device.mig_mode.load());
    for (int row = 1; row <= mig_rows; ++row) reserve_mig_row(file, first + i + row, first + i);
    if (mig == Mig::kDivided) divide(file, first + i, text);
  }
  *boards += static_cast<int>(count);
  file->header.device_count = static_cast<uint32_t>(first + devices);
  return true;
}

// The rows that GPUs which are divided from the start still lack.
bool add_mig_rows(NodeFile* file) {
  const auto count = static_cast<int>(file->header.device_count);
  for (int gpu = 0; gpu < count; ++gpu) {
    const MigCard* card = mig_card(file->device[gpu].mig_card);
    if (card == nullptr) continue;
    const auto rows = std::count_if(
        file->device, file->device + count,
        [gpu](const DeviceRow& row) { return static_cast<int>(row.mig_parent) == gpu + 1; });
    for (auto i = rows; i < card->slices; ++i) {
      if (file->header.device_count == kMaxDevices) return false;
      reserve_mig_row(file, static_cast<int>(file->header.device_count++), gpu);
    }
  }
  return true;
}

bool set_quirks(NodeFile* file, std::string_view list) {
  constexpr std::pair<std::string_view, KfdQuirk> kQuirks[] = {{"reversed", kReversedProbe},
                                                               {"underflow", kUnderflow},
                                                               {"unlists-first", kUnlistsFirst},
                                                               {"unlists-late", kUnlistsLate}};
  for (;;) {
    const size_t comma = list.find(',');
    const auto* const found = std::ranges::find(kQuirks, list.substr(0, comma),
                                                &std::pair<std::string_view, KfdQuirk>::first);
    if (found == std::end(kQuirks)) return false;
    file->header.kfd_quirks |= found->second;
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
  }
  return true;
}

}  // namespace

bool fill_profile(NodeFile* file, std::string_view text, const NodeOptions& options,
                  std::string* error) {
  std::strncpy(file->header.profile, std::string(text).c_str(), sizeof file->header.profile - 1);
  file->header.device_count = 0;
  int boards = 0;
  const auto refuse = [&] {
    if (error != nullptr) *error = "unknown profile '" + std::string(text) + "'";
    return false;
  };
  const size_t at = text.find('@');
  for (std::string_view rest = text.substr(0, at);;) {
    const size_t plus = rest.find('+');
    if (!add(file, rest.substr(0, plus), options, &boards)) return refuse();
    if (plus == std::string_view::npos) break;
    rest.remove_prefix(plus + 1);
  }
  if (!add_mig_rows(file)) return refuse();
  if (at != std::string_view::npos && !set_quirks(file, text.substr(at + 1))) return refuse();
  describe_boards(file);
  return true;
}

}  // namespace sim
