// Modes of partitioning; see amd_partitions.h.
//
// Which modes go together: AMD SMI's documentation, "GPU partitioning" (MI300X), and the kernel's
// __aqua_vanjaram_get_px_mode_info, by which CPX and QPX go with NPS2 on gfx950. MI325X is MI300X
// with other memory. NPS2 without NPS4 on MI355X: release notes of AMD's MxGPU-Virtualization.
#include "sim/node/amd_partitions.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "sim/kfd/tree.h"
#include "sim/node/container.h"
#include "sim/node/inject.h"
#include "sim/node/reap.h"

namespace sim {
namespace {

struct DivisibleChip {
  uint32_t pci_id;
  std::vector<uint32_t> ranges;
};

const DivisibleChip* divisible_chip(const DeviceRow& device) {
  static const auto* const chips =
      new std::vector<DivisibleChip>{{0x74a11002, {1, 2, 4}},  // MI300X
                                     {0x74a51002, {1, 2, 4}},  // MI325X
                                     {0x75a31002, {1, 2}}};    // MI355X
  const auto found = std::ranges::find(*chips, device.pci_id, &DivisibleChip::pci_id);
  return found != chips->end() ? &*found : nullptr;
}

bool contains(const std::vector<uint32_t>& modes, uint32_t mode) {
  return std::ranges::find(modes, mode) != modes.end();
}

uint32_t automatic_mode(uint32_t ranges) {
  return ranges == 4 ? 8 : ranges;
}

uint64_t mixed(uint64_t value) {  // splitmix64
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ value >> 27) * 0x94d049bb133111ebULL;
  return value ^ value >> 31;
}

std::vector<DeviceRow*> rows_of(NodeFile* file, uint32_t board) {
  std::vector<DeviceRow*> rows;
  for (uint32_t i = 0; i < file->header.device_count; ++i) {
    DeviceRow& row = file->device[i];
    if (row.vendor == Vendor::kAmd && row.absent == 0 && row.board == board) rows.push_back(&row);
  }
  std::ranges::sort(rows, {}, &DeviceRow::partition);
  return rows;
}

// Board after board, or against their order; the partitions of one stay together, as they are made
// together.
void number_kfd_nodes(NodeFile* file) {
  const bool reversed = (file->header.kfd_quirks & kReversedProbe) != 0;
  uint32_t next = 1;
  for (uint32_t i = 0; i < kMaxDevices; ++i) {
    for (DeviceRow* row : rows_of(file, reversed ? kMaxDevices - 1 - i : i)) row->kfd_node = next++;
  }
}

// 16 bits of a hash, as the kernel makes it, and the next number when two devices meet. The kernel
// hashes the number of compute units too, so that a partition is another device in each mode.
uint32_t gpu_id(const NodeFile& file, const DeviceRow& own, uint64_t hash) {
  const auto taken = [&](uint32_t id) {
    return id == 0 || std::any_of(file.device, file.device + file.header.device_count,
                                  [&](const DeviceRow& other) {
                                    return &other != &own && other.absent == 0 &&
                                           other.vendor == Vendor::kAmd && other.kfd_gpu_id == id;
                                  });
  };
  auto id = static_cast<uint32_t>(hash >> 40 & 0xffff);
  while (taken(id)) id = (id + 1) & 0xffff;
  return id;
}

void fill(NodeFile* file, const BoardRow& board, DeviceRow* row, uint32_t partition,
          uint32_t partitions) {
  const DeviceRow& first = file->device[board.row[0]];
  if (row != &first) std::memcpy(static_cast<void*>(row), &first, sizeof *row);
  row->used.store(0);
  row->partition = partition;
  row->partitions = partitions;
  row->total = row->nvml_total = board.total / partitions;
  row->multiprocessors = board.multiprocessors / partitions;
  row->location_id = row->pci_bus << 8 | row->pci_device << 3 |
                     (board.partition_is_function != 0 ? partition : partition << 28);
  const bool at_home = partitions == board.home;
  const uint64_t hash = mixed(board.home_unique_id[0] + partitions * 64 + partition);
  row->unique_id = at_home ? board.home_unique_id[partition]
                   : board.partitions_have_ids != 0 && partitions > 1 ? hash | 1
                                                                      : board.home_unique_id[0];
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(row->unique_id));
  std::memcpy(row->uuid, digits, sizeof row->uuid);
  row->absent = 0;
  row->kfd_gpu_id =
      gpu_id(*file, *row, at_home ? uint64_t{board.home_gpu_id[partition]} << 40 : mixed(hash));
}

void apply(NodeFile* file, BoardRow* board) {
  const uint32_t partitions = board->wanted_partitions;
  for (uint32_t p = 0; p < kMaxPartitions; ++p) {
    if (p >= partitions) {
      if (board->row[p] != 0) file->device[board->row[p]].absent = 1;
      continue;
    }
    if (p != 0 && board->row[p] == 0) board->row[p] = file->header.device_count;
    const uint32_t at = board->row[p];
    fill(file, *board, &file->device[at], p, partitions);
    // Another device than was there before.
    for (TenantRow& tenant : file->tenant) {
      tenant.device[at].tally.store(Tally{});
      tenant.device[at].high_water.store(0);
    }
    file->header.device_count = std::max(file->header.device_count, at + 1);
  }
  board->partitions = partitions;
  board->ranges = board->wanted_ranges;
}

// The caller holds the lock, and the change is decided.
void finish(NodeFile* file) {
  ordered("a change of partitions");
  for (BoardRow& board : file->board) {
    if (board.divisible == 0) continue;
    if (board.wanted_partitions == board.partitions && board.wanted_ranges == board.ranges)
      continue;
    apply(file, &board);
  }
  number_kfd_nodes(file);
  file->header.generation.fetch_add(1);
  file->header.changing.store(0);
}

bool is_busy(const NodeFile& file, uint64_t boards) {
  const auto opens = [boards](const ProcessRow& row) {
    return in_use(row) && row.vendor == Vendor::kAmd && (boards & ~row.excluded_boards) != 0;
  };
  return std::any_of(std::begin(file.process), std::end(file.process), opens) ||
         std::any_of(file.device, file.device + file.header.device_count,
                     [boards](const DeviceRow& row) {
                       return row.vendor == Vendor::kAmd && (boards >> row.board & 1) != 0 &&
                              row.used.load() != 0;
                     });
}

// Rows that the boards' wanted modes need beyond those that there are.
uint32_t missing_rows(const NodeFile& file) {
  uint32_t count = 0;
  for (const BoardRow& board : file.board) {
    for (uint32_t p = 1; p < board.wanted_partitions; ++p) count += board.row[p] == 0 ? 1 : 0;
  }
  return count;
}

// `choose` writes down what the boards shall be; `boards` must be idle for it.
template <typename Choose>
ModeChange change(Node& node, uint64_t boards, const Choose& choose) {
  NodeFile* const file = node.file();
  node.reap();
  {
    const ReapLock lock(node);
    if (!lock.held()) return ModeChange::kBusy;
    if (file->header.changing.load() != 0) finish(file);
    if (is_busy(*file, boards)) return ModeChange::kBusy;
    // What somebody wrote down who was killed before it was decided, is forgotten.
    for (BoardRow& board : file->board) {
      board.wanted_partitions = board.partitions;
      board.wanted_ranges = board.ranges;
    }
    choose();
    if (file->header.device_count + missing_rows(*file) > kMaxDevices) return ModeChange::kNoRoom;
    ordered("before a change of partitions");
    file->header.changing.store(1);
    finish(file);
  }
  make_kfd_tree(node.path(), *file);
  return ModeChange::kDone;
}

}  // namespace

std::string compute_mode_name(uint32_t partitions) {
  return partitions == 1 ? "SPX" : partitions == 2 ? "DPX" : partitions == 4 ? "QPX" : "CPX";
}

std::string memory_mode_name(uint32_t ranges) {
  return "NPS" + std::to_string(ranges);
}

std::vector<uint32_t> compute_modes(const DeviceRow& device) {
  return divisible_chip(device) != nullptr ? std::vector<uint32_t>{1, 2, 4, 8}
                                           : std::vector<uint32_t>();
}

std::vector<uint32_t> memory_modes(const DeviceRow& device) {
  const DivisibleChip* const chip = divisible_chip(device);
  return chip != nullptr ? chip->ranges : std::vector<uint32_t>();
}

bool goes_with(const DeviceRow& device, uint32_t partitions, uint32_t ranges) {
  if (!contains(compute_modes(device), partitions) || !contains(memory_modes(device), ranges))
    return false;
  const bool gfx950 = device.gfx_target_version == 90500;
  return ranges == 1 || (ranges == 2 && (partitions == 2 || (gfx950 && partitions > 2))) ||
         (ranges == 4 && partitions >= 4);
}

ModeChange set_compute_mode(Node& node, int dev, uint32_t partitions) {
  const DeviceRow& device = node.device(dev);
  if (divisible_chip(device) == nullptr || device.partition != 0) return ModeChange::kNotSupported;
  BoardRow& board = node.file()->board[device.board];
  if (!goes_with(device, partitions, board.ranges)) return ModeChange::kUnavailable;
  return change(node, uint64_t{1} << device.board, [&] { board.wanted_partitions = partitions; });
}

ModeChange set_memory_mode(Node& node, int dev, uint32_t ranges) {
  if (divisible_chip(node.device(dev)) == nullptr || node.device(dev).partition != 0)
    return ModeChange::kNotSupported;
  if (!contains(memory_modes(node.device(dev)), ranges)) return ModeChange::kUnavailable;
  NodeFile* const file = node.file();
  return change(node, ~uint64_t{0}, [&] {
    for (BoardRow& board : file->board) {
      if (board.divisible == 0 || !contains(memory_modes(file->device[board.row[0]]), ranges))
        continue;
      board.wanted_ranges = ranges;
      board.wanted_partitions = automatic_mode(ranges);
    }
  });
}

ModeChange reload_driver(Node& node) {
  const uint32_t ranges = node.file()->header.asked_ranges.load();
  for (const int dev : node.devices(Vendor::kAmd)) {
    if (ranges == 0 || !contains(memory_modes(node.device(dev)), ranges)) continue;
    const ModeChange changed = set_memory_mode(node, dev, ranges);
    if (changed == ModeChange::kDone) node.file()->header.asked_ranges.store(0);
    return changed;
  }
  return is_busy(*node.file(), ~uint64_t{0}) ? ModeChange::kBusy : ModeChange::kDone;
}

void settle_modes(const std::string& node_path, NodeFile* file) {
  if (file->header.changing.load(std::memory_order_acquire) == 0) [[likely]]
    return;
  const NodeDescriptor descriptor(node_path);
  if (descriptor.fd() < 0 || !descriptor.lock(kReapLock, true)) return;
  if (file->header.changing.load() != 0) finish(file);
}

void describe_boards(NodeFile* file) {
  number_kfd_nodes(file);
  for (uint32_t number = 0; number < kMaxDevices; ++number) {
    const std::vector<DeviceRow*> rows = rows_of(file, number);
    if (rows.empty() || divisible_chip(*rows[0]) == nullptr) continue;
    BoardRow& board = file->board[number];
    board.home = board.partitions = board.wanted_partitions = rows[0]->partitions;
    board.ranges = board.wanted_ranges = rows[0]->memory_ranges;
    for (size_t i = 0; i < rows.size(); ++i) {
      board.row[i] = static_cast<uint32_t>(rows[i] - file->device);
      board.home_gpu_id[i] = rows[i]->kfd_gpu_id;
      board.home_unique_id[i] = rows[i]->unique_id;
      board.total += rows[i]->total;
      board.multiprocessors += rows[i]->multiprocessors;
    }
    if (rows.size() > 1) {
      board.partition_is_function = (rows[1]->location_id & 7) != 0 ? 1 : 0;
      board.partitions_have_ids = rows[1]->unique_id != rows[0]->unique_id ? 1 : 0;
    }
    board.divisible = 1;
  }
}

uint64_t excluded_boards(const NodeFile& file) {
  uint64_t kept = 0, excluded = 0;
  for (uint32_t i = 0; i < file.header.device_count; ++i) {
    const DeviceRow& row = file.device[i];
    if (row.vendor != Vendor::kAmd || row.absent != 0) continue;
    (is_forbidden(static_cast<int>(i)) ? excluded : kept) |= uint64_t{1} << row.board;
  }
  return excluded & ~kept;
}

}  // namespace sim
