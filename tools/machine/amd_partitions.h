// How AMD's GPUs are divided into partitions, as the kernel tells it in sysfs. A board is one GPU
// with all its partitions; boards are numbered by their bus ids, from 0, whatever their modes, as
// amd-smi goes through its sockets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/machine/gpus.h"

namespace fracgpu::tools {

// The compute mode says into how many devices a GPU is divided (SPX, DPX, TPX, QPX, CPX), the
// memory mode into how many NUMA ranges (NPS1, …). All is empty where the kernel tells none: of
// GPUs that cannot be divided, and in containers.
struct PartitionModes {
  std::string compute, memory;           // now
  std::vector<std::string> all_compute;  // that the chip has
  std::vector<std::string> all_memory;

  std::string text() const { return compute.empty() ? "" : compute + "/" + memory; }
};

// Of the GPU whose first device has this render node.
PartitionModes read_partition_modes(int render_minor);

struct Board {
  int number = 0;
  std::vector<Gpu> partitions;  // at least one
  PartitionModes modes;

  std::string bus_id() const;
  std::string label() const;  // "GPU 0 (0000:18:00.0)"
  // "GPU 0 (0000:18:00.0): CPX/NPS4, 8 GPUs of 23.9 GiB (index 0-7)"
  std::string text() const;
  // Into how many devices a mode divides it; 0: not known.
  uint32_t partitions_in(const std::string& compute) const;
  uint64_t bytes() const;  // of all of it
};

// Of the GPU that this one is, or is a part of: "0000:18:00.0".
std::string board_bus_id(const Gpu& gpu);

// "8 GPUs of 23.9 GiB"
std::string parts_text(size_t count, uint64_t bytes);

// Fills in which board each of AMD's GPUs is of, and the board's modes.
void tell_boards(std::vector<Gpu>& gpus);

// Of a list by list_gpus().
std::vector<Board> amd_boards(const std::vector<Gpu>& gpus);

// Processes that have a partition of the board open by KFD's list, which shows those alone that it
// knows on the device. PIDs are the driver's.
struct KfdUser {
  uint32_t pid = 0;
  uint64_t bytes = 0;  // on all partitions of the board
};
std::vector<KfdUser> kfd_users(const Board& board);

}  // namespace fracgpu::tools
