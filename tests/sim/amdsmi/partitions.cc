// How a GPU is divided, as the simulated libamd_smi shows and changes it (amdsmi.h of 6.1
// and 10.1).
//
// Until 6.4 the library reloads the kernel driver itself when the memory mode is to change. In 7
// that is a call of its own, which 10 has no more: there somebody reloads it with modprobe
// (changelogs of AMD SMI), which here is `simnode reload`.
#include <unistd.h>

#include <algorithm>

#include "sim/amdsmi/state.h"
#include "sim/node/amd_partitions.h"

namespace sim {
namespace {

constexpr bool kOldModes = kSmiVersion < 25;
constexpr bool kReloads = kSmiVersion < 26;
constexpr uint32_t kXcc = 0, kDecoder = 2, kDma = 3, kJpeg = 4;
constexpr uint32_t kMostResourceTypes = 4;

rsmi_compute_partition_type_t compute_mode(uint32_t mode) {
  using enum rsmi_compute_partition_type_t;
  // CPX came first once.
  constexpr rsmi_compute_partition_type_t kOld[] = {
      RSMI_COMPUTE_PARTITION_INVALID, RSMI_COMPUTE_PARTITION_CPX, RSMI_COMPUTE_PARTITION_SPX,
      RSMI_COMPUTE_PARTITION_DPX,     RSMI_COMPUTE_PARTITION_TPX, RSMI_COMPUTE_PARTITION_QPX};
  if (mode > RSMI_COMPUTE_PARTITION_CPX) return RSMI_COMPUTE_PARTITION_INVALID;
  return kOldModes ? kOld[mode] : static_cast<rsmi_compute_partition_type_t>(mode);
}

// Their numbers are 1, 2, 3 and 4 in old versions, and 1, 2, 4 and 8 since.
uint32_t ranges_of(uint32_t mode) {
  if (kOldModes) return mode >= 1 && mode <= 4 ? 1u << (mode - 1) : 0;
  return mode == 1 || mode == 2 || mode == 4 || mode == 8 ? mode : 0;
}

rsmi_memory_partition_type_t rsmi_mode(uint32_t ranges) {
  return ranges == 1   ? RSMI_MEMORY_PARTITION_NPS1
         : ranges == 2 ? RSMI_MEMORY_PARTITION_NPS2
         : ranges == 4 ? RSMI_MEMORY_PARTITION_NPS4
                       : RSMI_MEMORY_PARTITION_NPS8;
}

amdsmi_status_t set_memory(int device, uint32_t mode) {
  const uint32_t ranges = ranges_of(mode);
  if (ranges == 0) return AMDSMI_STATUS_INVAL;
  const DeviceRow& row = smi_row(device);
  const std::vector<uint32_t> had = memory_modes(row);
  if (had.empty() || row.partition != 0) return AMDSMI_STATUS_NOT_SUPPORTED;
  if (kReloads) {
    return smi_status(
        rsmi_dev_memory_partition_set(static_cast<uint32_t>(device), rsmi_mode(ranges)));
  }
  if (geteuid() != 0) return AMDSMI_STATUS_NO_PERM;
  if (std::ranges::find(had, ranges) == had.end()) return AMDSMI_STATUS_INVAL;
  rsmi_node().file()->header.asked_ranges.store(ranges);
  return AMDSMI_STATUS_SUCCESS;
}

[[maybe_unused]] uint32_t mask_of(const std::vector<uint32_t>& ranges) {
  uint32_t mask = 0;
  for (const uint32_t each : ranges) mask |= each;  // NPS1, 2, 4 and 8 are bits of their own
  return mask;
}

[[maybe_unused]] void fill(SmiComputeProfile* profile, const DeviceRow& row, uint32_t index) {
  constexpr SmiComputeMode kModes[] = {SmiComputeMode::kSpx, SmiComputeMode::kDpx,
                                       SmiComputeMode::kQpx, SmiComputeMode::kCpx};
  const uint32_t partitions = compute_modes(row)[index];
  *profile = {};
  profile->mode = kModes[index];
  profile->partitions = partitions;
  profile->index = index;
  profile->resource_count = kMostResourceTypes;
  for (const uint32_t ranges : memory_modes(row)) {
    if (goes_with(row, partitions, ranges)) profile->ranges_had |= ranges;
  }
  for (uint32_t p = 0; p < partitions; ++p) {
    for (uint32_t type = 0; type < kMostResourceTypes; ++type)
      profile->resource[p][type] = index * kMostResourceTypes + type;
  }
}

// aqua_vanjaram_get_xcp_res_info: fewer than there are partitions are shared among them.
[[maybe_unused]] SmiResource resource(uint32_t profile, uint32_t type, uint32_t there,
                                      uint32_t each, uint32_t partitions) {
  return {.profile = profile,
          .type = type,
          .instances = std::max(there / partitions, 1u) * each,
          .shared_by = std::max(partitions / there, 1u),
          .reserved = {}};
}

}  // namespace
}  // namespace sim

SIM_API amdsmi_status_t amdsmi_get_gpu_compute_partition(amdsmi_processor_handle handle, char* text,
                                                         uint32_t length) {
  SMI_CALL(amdsmi_get_gpu_compute_partition);
  SMI_DEVICE(handle, device);
  return sim::smi_status(
      rsmi_dev_compute_partition_get(static_cast<uint32_t>(device), text, length));
}

SIM_API amdsmi_status_t amdsmi_get_gpu_memory_partition(amdsmi_processor_handle handle, char* text,
                                                        uint32_t length) {
  SMI_CALL(amdsmi_get_gpu_memory_partition);
  SMI_DEVICE(handle, device);
  return sim::smi_status(
      rsmi_dev_memory_partition_get(static_cast<uint32_t>(device), text, length));
}

SIM_API amdsmi_status_t amdsmi_set_gpu_compute_partition(amdsmi_processor_handle handle,
                                                         uint32_t mode) {
  SMI_CALL(amdsmi_set_gpu_compute_partition);
  SMI_DEVICE(handle, device);
  return sim::smi_status(
      rsmi_dev_compute_partition_set(static_cast<uint32_t>(device), sim::compute_mode(mode)));
}

SIM_API amdsmi_status_t amdsmi_set_gpu_memory_partition(amdsmi_processor_handle handle,
                                                        uint32_t mode) {
  SMI_CALL(amdsmi_set_gpu_memory_partition);
  SMI_DEVICE(handle, device);
  return sim::set_memory(device, mode);
}

#if SIM_AMDSMI_VERSION >= 25
SIM_API amdsmi_status_t amdsmi_set_gpu_memory_partition_mode(amdsmi_processor_handle handle,
                                                             uint32_t mode) {
  SMI_CALL(amdsmi_set_gpu_memory_partition_mode);
  SMI_DEVICE(handle, device);
  return sim::set_memory(device, mode);
}

SIM_API amdsmi_status_t amdsmi_get_gpu_memory_partition_config(amdsmi_processor_handle handle,
                                                               sim::SmiMemoryConfig* config) {
  SMI_CALL(amdsmi_get_gpu_memory_partition_config);
  SMI_DEVICE(handle, device);
  if (config == nullptr) return AMDSMI_STATUS_INVAL;
  const sim::DeviceRow& row = sim::smi_row(device);
  *config = {};
  if (sim::memory_modes(row).empty() || row.partition != 0) return AMDSMI_STATUS_NOT_SUPPORTED;
  config->ranges_had = sim::mask_of(sim::memory_modes(row));
  config->mode = sim::rsmi_node().file()->board[row.board].ranges;
  return AMDSMI_STATUS_SUCCESS;
}

// Of the GPU's other partitions it tells the number alone.
SIM_API amdsmi_status_t amdsmi_get_gpu_accelerator_partition_profile(
    amdsmi_processor_handle handle, sim::SmiComputeProfile* profile, uint32_t* partition) {
  SMI_CALL(amdsmi_get_gpu_accelerator_partition_profile);
  SMI_DEVICE(handle, device);
  if (profile == nullptr || partition == nullptr) return AMDSMI_STATUS_INVAL;
  const sim::DeviceRow& row = sim::smi_row(device);
  *partition = row.partition;
  const std::vector<uint32_t> had = sim::compute_modes(row);
  if (had.empty() || row.partition != 0) return AMDSMI_STATUS_NOT_SUPPORTED;
  const auto at = std::ranges::find(had, row.partitions) - had.begin();
  sim::fill(profile, row, static_cast<uint32_t>(at));
  return AMDSMI_STATUS_SUCCESS;
}

SIM_API amdsmi_status_t amdsmi_get_gpu_accelerator_partition_profile_config(
    amdsmi_processor_handle handle, sim::SmiComputeConfig* config) {
  SMI_CALL(amdsmi_get_gpu_accelerator_partition_profile_config);
  SMI_DEVICE(handle, device);
  if (config == nullptr) return AMDSMI_STATUS_INVAL;
  const sim::DeviceRow& row = sim::smi_row(device);
  *config = {};
  const std::vector<uint32_t> had = sim::compute_modes(row);
  if (had.empty() || row.partition != 0) return AMDSMI_STATUS_NOT_SUPPORTED;
  config->profile_count = static_cast<uint32_t>(had.size());
  config->resource_count = sim::kMostResourceTypes;  // of each profile
  sim::SmiResource* next = config->resource;
  for (uint32_t i = 0; i < config->profile_count; ++i) {
    sim::fill(&config->profile[i], row, i);
    *next++ = sim::resource(i, sim::kXcc, 8, 1, had[i]);
    *next++ = sim::resource(i, sim::kDecoder, 4, 1, had[i]);
    *next++ = sim::resource(i, sim::kDma, 16, 1, had[i]);
    *next++ = sim::resource(i, sim::kJpeg, 4, 8, had[i]);
  }
  return AMDSMI_STATUS_SUCCESS;
}

SIM_API amdsmi_status_t amdsmi_set_gpu_accelerator_partition_profile(amdsmi_processor_handle handle,
                                                                     uint32_t index) {
  SMI_CALL(amdsmi_set_gpu_accelerator_partition_profile);
  SMI_DEVICE(handle, device);
  constexpr rsmi_compute_partition_type_t kModes[] = {
      RSMI_COMPUTE_PARTITION_SPX, RSMI_COMPUTE_PARTITION_DPX, RSMI_COMPUTE_PARTITION_QPX,
      RSMI_COMPUTE_PARTITION_CPX};
  if (sim::compute_modes(sim::smi_row(device)).empty()) return AMDSMI_STATUS_NOT_SUPPORTED;
  if (index >= std::size(kModes)) return AMDSMI_STATUS_INVAL;
  return sim::smi_status(
      rsmi_dev_compute_partition_set(static_cast<uint32_t>(device), kModes[index]));
}
#endif

#if SIM_AMDSMI_VERSION == 26
SIM_API amdsmi_status_t amdsmi_gpu_driver_reload() {
  SMI_CALL(amdsmi_gpu_driver_reload);
  if (geteuid() != 0) return AMDSMI_STATUS_NO_PERM;
  return sim::reload_driver(sim::rsmi_node()) == sim::ModeChange::kDone
             ? AMDSMI_STATUS_SUCCESS
             : AMDSMI_STATUS_AMDGPU_RESTART_ERR;
}
#endif
