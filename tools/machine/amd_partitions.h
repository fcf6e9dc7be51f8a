// The partitions of AMD's GPUs, as the kernel shows them in sysfs. A board is one GPU with all its
// partitions. Boards are numbered from 0 by their bus ids, whatever their modes are, as amd-smi
// enumerates its sockets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/machine/gpus.h"

namespace fracgpu::tools {

// The compute mode is the number of devices that a GPU is divided into (SPX, DPX, TPX, QPX, CPX).
// The memory mode is the number of NUMA ranges (NPS1, …). All fields are empty if the kernel shows
// no modes, as for GPUs that cannot be divided, and in containers.
struct PartitionModes {
  std::string compute, memory;           // now
  std::vector<std::string> all_compute;  // all modes of the chip
  std::vector<std::string> all_memory;

  std::string text() const { return compute.empty() ? "" : compute + "/" + memory; }
};

// The modes of the GPU whose first device has this render node.
PartitionModes read_partition_modes(int render_minor);

struct Board {
  int number = 0;
  std::vector<Gpu> partitions;  // at least one
  PartitionModes modes;

  std::string bus_id() const;
  std::string label() const;  // "GPU 0 (0000:18:00.0)"
  // "GPU 0 (0000:18:00.0): CPX/NPS4, 8 GPUs of 23.9 GiB (index 0-7)"
  std::string text() const;
  // The number of devices that a mode divides the board into; 0 if not known.
  uint32_t partitions_in(const std::string& compute) const;
  uint64_t bytes() const;  // of the whole board
};

// The bus id of the GPU that this device is, or is a part of: "0000:18:00.0".
std::string board_bus_id(const Gpu& gpu);

// "8 GPUs of 23.9 GiB"
std::string parts_text(size_t count, uint64_t bytes);

// Fills in the board of each of AMD's GPUs, and the board's modes.
void tell_boards(std::vector<Gpu>& gpus);

// The boards in a list by list_gpus().
std::vector<Board> amd_boards(const std::vector<Gpu>& gpus);

// Processes that have a partition of the board open, by KFD's list. The list shows only processes
// that KFD knows on the device. PIDs are the driver's.
struct KfdUser {
  uint32_t pid = 0;
  uint64_t bytes = 0;  // on all partitions of the board
};
std::vector<KfdUser> kfd_users(const Board& board);

}  // namespace fracgpu::tools
