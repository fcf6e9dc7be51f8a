// Reads the partition modes; see amd_partitions.h.
//
//   /sys/class/drm/renderD<n>/device/   only of the GPU's first device (amdgpu_gfx.c,
//   amdgpu_gmc.c)
//     current_compute_partition         SPX
//     available_compute_partition       SPX, DPX, …: those that fit the current memory mode
//     compute_partition_config/supported_xcp_configs   all modes of the chip; newer kernels
//     current_memory_partition          NPS1
//     available_memory_partition        NPS1, NPS4
#include "tools/machine/amd_partitions.h"

#include <dirent.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "hooks/usage/kfd_topology.h"
#include "hooks/usage/kfd_usage.h"
#include "shim/base/small_file.h"
#include "tools/cli/text_list.h"

namespace fracgpu::tools {
namespace {

std::string read_line(const std::string& path) {
  char text[256] = "";
  if (read_small_file(path.c_str(), text, sizeof text) < 0) return {};
  return std::string(trim(text));
}

std::vector<std::string> read_list(const std::string& path) {
  const std::string line = read_line(path);
  std::vector<std::string> items;
  for (const std::string_view item : split(line, ',')) {
    if (!item.empty()) items.emplace_back(item);
  }
  return items;
}

}  // namespace

PartitionModes read_partition_modes(int render_minor) {
  const std::string folder = fmt::format("/sys/class/drm/renderD{}/device/", render_minor);
  PartitionModes modes{
      .compute = read_line(folder + "current_compute_partition"),
      .memory = read_line(folder + "current_memory_partition"),
      .all_compute = read_list(folder + "compute_partition_config/supported_xcp_configs"),
      .all_memory = read_list(folder + "available_memory_partition")};
  if (modes.compute.empty() || modes.memory.empty()) return {};
  if (modes.all_compute.empty())
    modes.all_compute = read_list(folder + "available_compute_partition");
  return modes;
}

std::string board_bus_id(const Gpu& gpu) {
  const BusId& at = gpu.bus_id;
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", at.domain, at.bus, at.device,
                     at.function_is_partition ? 0 : at.function);
}

std::string parts_text(size_t count, uint64_t bytes) {
  return fmt::format("{} GPU{} of {}", count, count == 1 ? "" : "s", human_bytes(bytes).c_str());
}

std::string Board::bus_id() const {
  return board_bus_id(partitions[0]);
}

std::string Board::label() const {
  return fmt::format("GPU {} ({})", number, bus_id());
}

std::string Board::text() const {
  const auto [first, last] = std::ranges::minmax(partitions, {}, &Gpu::index);
  const std::string indices = first.index == last.index
                                  ? std::to_string(first.index)
                                  : fmt::format("{}-{}", first.index, last.index);
  return fmt::format("{}: {}, {} (index {})", label(),
                     modes.compute.empty() ? "not divisible" : modes.text(),
                     parts_text(partitions.size(), partitions[0].physical), indices);
}

uint32_t Board::partitions_in(const std::string& compute) const {
  constexpr std::pair<const char*, uint32_t> kModes[] = {
      {"SPX", 1}, {"DPX", 2}, {"TPX", 3}, {"QPX", 4}};
  for (const auto& [name, count] : kModes) {
    if (compute == name) return count;
  }
  // CPX makes a device of each compute die.
  uint64_t all = 0;
  for (const Gpu& partition : partitions) {
    uint64_t dies = 0;
    const kfd::Property wanted[] = {{"num_xcc", &dies}};
    if (!kfd::read_properties(partition.key.c_str(), wanted)) return 0;
    all += dies;
  }
  return compute == "CPX" ? static_cast<uint32_t>(all) : 0;
}

uint64_t Board::bytes() const {
  uint64_t sum = 0;
  for (const Gpu& partition : partitions) sum += partition.physical;
  return sum;
}

void tell_boards(std::vector<Gpu>& gpus) {
  std::map<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>, std::vector<Gpu*>> boards;
  for (Gpu& gpu : gpus) {
    const BusId& at = gpu.bus_id;
    if (gpu.vendor != Gpu::Vendor::amd) continue;
    boards[{at.domain, at.bus, at.device, at.function_is_partition ? 0 : at.function}].push_back(
        &gpu);
  }
  int number = 0;
  for (auto& [place, partitions] : boards) {
    const auto first = std::min_element(
        partitions.begin(), partitions.end(),
        [](const Gpu* a, const Gpu* b) { return a->render_minor < b->render_minor; });
    const std::string mode = read_partition_modes((*first)->render_minor).text();
    for (Gpu* const gpu : partitions) {
      gpu->board = number;
      gpu->mode = mode;
    }
    ++number;
  }
}

std::vector<Board> amd_boards(const std::vector<Gpu>& gpus) {
  std::vector<Board> boards;
  for (const Gpu& gpu : gpus) {
    if (gpu.board < 0) continue;
    const auto at = static_cast<size_t>(gpu.board);
    if (boards.size() <= at) boards.resize(at + 1);
    boards[at].number = gpu.board;
    boards[at].partitions.push_back(gpu);
  }
  std::erase_if(boards, [](const Board& board) { return board.partitions.empty(); });
  for (Board& board : boards) {
    int first = board.partitions[0].render_minor;
    for (const Gpu& gpu : board.partitions) first = std::min(first, gpu.render_minor);
    board.modes = read_partition_modes(first);
  }
  return boards;
}

std::vector<KfdUser> kfd_users(const Board& board) {
  std::vector<KfdUser> users;
  DIR* const list = opendir(fmt::format("{}/proc", kfd::kRoot).c_str());
  if (list == nullptr) return users;
  while (const dirent* const entry = readdir(list)) {
    const std::string_view name = entry->d_name;
    KfdUser user;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), user.pid);
    if (error != std::errc() || *end != '\0') continue;
    bool known = false;
    for (const Gpu& partition : board.partitions) {
      // The file exists only for a device that the process has open.
      const std::string id = partition.key.substr(partition.key.find('-') + 1);
      const std::string path = fmt::format("{}/proc/{}/vram_{}", kfd::kRoot, user.pid, id);
      if (access(path.c_str(), F_OK) != 0) continue;
      known = true;
      uint64_t bytes = 0;
      if (kfd::bytes_of(user.pid, partition.key.c_str(), bytes)) user.bytes += bytes;
    }
    if (known) users.push_back(user);
  }
  closedir(list);
  std::ranges::sort(users, {}, &KfdUser::pid);
  return users;
}

}  // namespace fracgpu::tools
