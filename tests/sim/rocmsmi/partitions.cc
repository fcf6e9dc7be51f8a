// How a GPU is divided, as the simulated librocm_smi64 shows and changes it. All partitions tell
// their GPU's modes; the first one changes them, since the kernel gives the files to it alone.
#include <unistd.h>

#include "sim/node/amd_partitions.h"
#include "sim/rocmsmi/state.h"

namespace sim {
namespace {

// Of a GPU with one mode alone there is nothing to be read, but for those of the profiles that are
// divided all the same.
uint32_t ranges_of(const DeviceRow& device) {
  const BoardRow& board = rsmi_node().file()->board[device.board];
  return board.divisible != 0 ? board.ranges : device.memory_ranges;
}

rsmi_status_t status_of(ModeChange change) {
  switch (change) {
    case ModeChange::kDone:
      return RSMI_STATUS_SUCCESS;
    case ModeChange::kBusy:
      return RSMI_STATUS_BUSY;
    case ModeChange::kNotSupported:
      return RSMI_STATUS_NOT_SUPPORTED;
    case ModeChange::kUnavailable:
      return RSMI_STATUS_SETTING_UNAVAILABLE;
    case ModeChange::kNoRoom:
      return RSMI_STATUS_OUT_OF_RESOURCES;
  }
  return RSMI_STATUS_INVALID_ARGS;
}

// The kernel's files belong to root, whose mode is 0644.
rsmi_status_t may_change() {
  return geteuid() == 0 ? RSMI_STATUS_SUCCESS : RSMI_STATUS_PERMISSION;
}

}  // namespace
}  // namespace sim

SIM_API rsmi_status_t rsmi_dev_compute_partition_get(uint32_t device, char* text, uint32_t length) {
  RSMI_CALL(rsmi_dev_compute_partition_get);
  RSMI_DEVICE(device, dev);
  if (sim::rsmi_is_old()) return RSMI_STATUS_NOT_SUPPORTED;
  return sim::copy_text(sim::compute_mode_name(sim::rsmi_node().device(dev).partitions), text,
                        length);
}

SIM_API rsmi_status_t rsmi_dev_memory_partition_get(uint32_t device, char* text, uint32_t length) {
  RSMI_CALL(rsmi_dev_memory_partition_get);
  RSMI_DEVICE(device, dev);
  if (sim::rsmi_is_old()) return RSMI_STATUS_NOT_SUPPORTED;
  const sim::DeviceRow& row = sim::rsmi_node().device(dev);
  return sim::copy_text(sim::memory_mode_name(sim::ranges_of(row)), text, length);
}

// "NPS1, NPS2, NPS4", as the kernel's file has it.
SIM_API rsmi_status_t rsmi_dev_memory_partition_capabilities_get(uint32_t device, char* text,
                                                                 uint32_t length) {
  RSMI_CALL(rsmi_dev_memory_partition_capabilities_get);
  RSMI_DEVICE(device, dev);
  std::string modes;
  for (const uint32_t ranges : sim::memory_modes(sim::rsmi_node().device(dev))) {
    modes += (modes.empty() ? "" : ", ") + sim::memory_mode_name(ranges);
  }
  return modes.empty() ? RSMI_STATUS_NOT_SUPPORTED : sim::copy_text(modes, text, length);
}

SIM_API rsmi_status_t rsmi_dev_compute_partition_set(uint32_t device,
                                                     rsmi_compute_partition_type_t mode) {
  RSMI_CALL(rsmi_dev_compute_partition_set);
  RSMI_DEVICE(device, dev);
  if (sim::rsmi_is_old()) return RSMI_STATUS_NOT_SUPPORTED;
  constexpr uint32_t kPartitions[] = {0, 1, 2, 3, 4, 8};
  if (mode == 0 || mode > RSMI_COMPUTE_PARTITION_CPX) return RSMI_STATUS_INVALID_ARGS;
  if (const rsmi_status_t refused = sim::may_change()) return refused;
  return sim::status_of(sim::set_compute_mode(sim::rsmi_node(), dev, kPartitions[mode]));
}

SIM_API rsmi_status_t rsmi_dev_memory_partition_set(uint32_t device,
                                                    rsmi_memory_partition_type_t mode) {
  RSMI_CALL(rsmi_dev_memory_partition_set);
  RSMI_DEVICE(device, dev);
  if (sim::rsmi_is_old()) return RSMI_STATUS_NOT_SUPPORTED;
  if (mode == 0 || mode > RSMI_MEMORY_PARTITION_NPS8) return RSMI_STATUS_INVALID_ARGS;
  if (const rsmi_status_t refused = sim::may_change()) return refused;
  return sim::status_of(sim::set_memory_mode(sim::rsmi_node(), dev, 1u << (mode - 1)));
}
