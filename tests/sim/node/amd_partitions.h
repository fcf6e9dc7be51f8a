// The modes in which AMD's larger GPUs are divided: the compute mode says into how many devices,
// the memory mode into how many NUMA ranges. A board is one GPU with all its partitions.
//
// A change is decided by one store and made by filling rows again, both under the lock that
// registers processes: who finds a change half made makes the rest of it, so that a kill leaves the
// old modes or the new ones. Rows never move: a partition that comes takes a row at the end and
// keeps it for its board, and one that goes leaves its row marked absent.
#pragma once

#include <string>
#include <vector>

#include "sim/node/node.h"

namespace sim {

// What a mode of so many partitions or ranges is called: "CPX", "NPS4".
std::string compute_mode_name(uint32_t partitions);
std::string memory_mode_name(uint32_t ranges);

// What the chip has, by numbers of partitions and of ranges; nothing for one that is never divided.
std::vector<uint32_t> compute_modes(const DeviceRow& device);
std::vector<uint32_t> memory_modes(const DeviceRow& device);
// Whether it has the two together.
bool goes_with(const DeviceRow& device, uint32_t partitions, uint32_t ranges);

enum class ModeChange { kDone, kBusy, kNotSupported, kUnavailable, kNoRoom };

// Divides the board of a device anew. Busy while any process has one of its partitions open, which
// every process has that has opened KFD, but for those whose container excludes the board
// (kgd2kfd_check_and_lock_kfd in the kernel).
ModeChange set_compute_mode(Node& node, int dev, uint32_t partitions);

// Reloads the driver: every board that can gets this memory mode and the compute mode that goes
// with it by itself (__aqua_vanjaram_get_auto_mode in the kernel). Busy while anybody has KFD open.
ModeChange set_memory_mode(Node& node, int dev, uint32_t ranges);

// What a memory mode that was asked for waits for; nothing changes where none was.
ModeChange reload_driver(Node& node);

// Makes the rest of a change whose maker was killed, or waits for who is making it.
void settle_modes(const std::string& node_path, NodeFile* file);

// Of a new node whose rows are filled: what its boards are, and KFD's numbers of all devices.
void describe_boards(NodeFile* file);

// The boards that a container keeps from this process, as bits.
uint64_t excluded_boards(const NodeFile& file);

}  // namespace sim
