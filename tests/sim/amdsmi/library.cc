// Initialisation, handles and identity of the simulated libamd_smi. A socket is a GPU, a processor
// is one partition of it. Handles point to bytes of a table.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "sim/amdsmi/state.h"

namespace sim {
namespace {

constexpr uint32_t kGpuOfAmd = 1;  // a type of processor

char processors[kMaxDevices];
char sockets[kMaxDevices];  // at the number of the first partition

int index_in(const char* table, const void* handle) {
  const auto* at = static_cast<const char*>(handle);
  const int count = static_cast<int>(rsmi_devices().size());
  for (int i = 0; i < count; ++i) {
    if (at == table + i) return i;
  }
  return -1;
}

}  // namespace

int smi_device(amdsmi_processor_handle handle) {
  return index_in(processors, handle);
}

const DeviceRow& smi_row(int device) {
  return rsmi_node().device(rsmi_device(static_cast<uint32_t>(device)));
}

amdsmi_status_t smi_status(rsmi_status_t status) {
  switch (status) {
    case RSMI_STATUS_SUCCESS:
      return AMDSMI_STATUS_SUCCESS;
    case RSMI_STATUS_NOT_SUPPORTED:
      return AMDSMI_STATUS_NOT_SUPPORTED;
    case RSMI_STATUS_INIT_ERROR:
      return AMDSMI_STATUS_NOT_INIT;
    case RSMI_STATUS_NOT_FOUND:
      return AMDSMI_STATUS_NOT_FOUND;
    case RSMI_STATUS_PERMISSION:
      return AMDSMI_STATUS_NO_PERM;
    case RSMI_STATUS_OUT_OF_RESOURCES:
      return AMDSMI_STATUS_OUT_OF_RESOURCES;
    case RSMI_STATUS_BUSY:
      return AMDSMI_STATUS_BUSY;
    case RSMI_STATUS_SETTING_UNAVAILABLE:
      return AMDSMI_STATUS_SETTING_UNAVAILABLE;
    case RSMI_STATUS_INSUFFICIENT_SIZE:
      return AMDSMI_STATUS_INSUFFICIENT_SIZE;
    default:
      return AMDSMI_STATUS_INVAL;
  }
}

}  // namespace sim

SIM_API amdsmi_status_t amdsmi_init(uint64_t) {
  return rsmi_init(0) == RSMI_STATUS_SUCCESS ? AMDSMI_STATUS_SUCCESS
                                             : AMDSMI_STATUS_DRIVER_NOT_LOADED;
}

SIM_API amdsmi_status_t amdsmi_shut_down() {
  return sim::smi_status(rsmi_shut_down());
}

// The year came first until 6.3. It is not told before the library is initialised.
SIM_API amdsmi_status_t amdsmi_get_lib_version(void* version) {
  SMI_CALL(amdsmi_get_lib_version);
  if (version == nullptr) return AMDSMI_STATUS_INVAL;
  const char* const build = "simulated";
  if constexpr (sim::kSmiVersion < 25) {
    const uint32_t numbers[] = {24, 5, 2, 0};
    std::memcpy(version, numbers, sizeof numbers);
    std::memcpy(static_cast<char*>(version) + 16, &build, sizeof build);
  } else {
    const uint32_t numbers[] = {sim::kSmiVersion, 1, 0};
    std::memcpy(version, numbers, sizeof numbers);
    std::memcpy(static_cast<char*>(version) + 16, &build, sizeof build);
  }
  return AMDSMI_STATUS_SUCCESS;
}

SIM_API amdsmi_status_t amdsmi_status_code_to_string(amdsmi_status_t status, const char** text) {
  if (text == nullptr) return AMDSMI_STATUS_INVAL;
  *text = status == AMDSMI_STATUS_SUCCESS ? "Success" : "an error of the simulated library";
  return AMDSMI_STATUS_SUCCESS;
}

SIM_API amdsmi_status_t amdsmi_get_socket_handles(uint32_t* count, amdsmi_socket_handle* handles) {
  SMI_CALL(amdsmi_get_socket_handles);
  if (count == nullptr) return AMDSMI_STATUS_INVAL;
  uint32_t there = 0;
  for (int i = 0; i < static_cast<int>(sim::rsmi_devices().size()); ++i) {
    if (sim::smi_row(i).partition != 0) continue;
    if (handles != nullptr && there < *count) handles[there] = sim::sockets + i;
    ++there;
  }
  *count = handles == nullptr ? there : std::min(*count, there);
  return AMDSMI_STATUS_SUCCESS;
}

SIM_API amdsmi_status_t amdsmi_get_processor_handles(amdsmi_socket_handle socket, uint32_t* count,
                                                     amdsmi_processor_handle* handles) {
  SMI_CALL(amdsmi_get_processor_handles);
  const int first = sim::index_in(sim::sockets, socket);
  if (count == nullptr || first < 0) return AMDSMI_STATUS_INVAL;
  const uint32_t there = sim::smi_row(first).partitions;
  for (uint32_t i = 0; handles != nullptr && i < std::min(*count, there); ++i) {
    handles[i] = sim::processors + first + i;
  }
  *count = handles == nullptr ? there : std::min(*count, there);
  return AMDSMI_STATUS_SUCCESS;
}

// Newer tools ask so.
SIM_API amdsmi_status_t amdsmi_get_processor_handles_by_type(amdsmi_socket_handle socket,
                                                             uint32_t type,
                                                             amdsmi_processor_handle* handles,
                                                             uint32_t* count) {
  if (type == sim::kGpuOfAmd) return amdsmi_get_processor_handles(socket, count, handles);
  if (count == nullptr) return AMDSMI_STATUS_INVAL;
  *count = 0;
  return AMDSMI_STATUS_SUCCESS;
}

SIM_API amdsmi_status_t amdsmi_get_processor_type(amdsmi_processor_handle handle, uint32_t* type) {
  SMI_CALL(amdsmi_get_processor_type);
  SMI_DEVICE(handle, device);
  if (type == nullptr) return AMDSMI_STATUS_INVAL;
  *type = sim::kGpuOfAmd;
  return AMDSMI_STATUS_SUCCESS;
}

SIM_API amdsmi_status_t amdsmi_get_gpu_bdf_id(amdsmi_processor_handle handle, uint64_t* bdf) {
  SMI_CALL(amdsmi_get_gpu_bdf_id);
  SMI_DEVICE(handle, device);
  return sim::smi_status(rsmi_dev_pci_id_get(static_cast<uint32_t>(device), bdf));
}

// Without the partition, for which it has no room.
SIM_API amdsmi_status_t amdsmi_get_gpu_device_bdf(amdsmi_processor_handle handle, uint64_t* bdf) {
  SMI_CALL(amdsmi_get_gpu_device_bdf);
  SMI_DEVICE(handle, device);
  if (bdf == nullptr) return AMDSMI_STATUS_INVAL;
  const sim::DeviceRow& row = sim::smi_row(device);
  *bdf = static_cast<uint64_t>(row.pci_domain) << 16 | (row.location_id & 0xffff);
  return AMDSMI_STATUS_SUCCESS;
}

SIM_API amdsmi_status_t amdsmi_get_gpu_device_uuid(amdsmi_processor_handle handle, uint32_t* length,
                                                   char* uuid) {
  SMI_CALL(amdsmi_get_gpu_device_uuid);
  SMI_DEVICE(handle, device);
  if (length == nullptr || uuid == nullptr || *length < 38) return AMDSMI_STATUS_INVAL;
  const sim::DeviceRow& row = sim::smi_row(device);
  *length = static_cast<uint32_t>(
      std::snprintf(uuid, 38, "00ff%04x-0000-1000-8000-%012llx", row.pci_id >> 16,
                    static_cast<unsigned long long>(row.unique_id & 0xffffffffffff)));
  return AMDSMI_STATUS_SUCCESS;
}

SIM_API amdsmi_status_t amdsmi_get_gpu_asic_info(amdsmi_processor_handle handle,
                                                 sim::SmiAsicInfo* info) {
  SMI_CALL(amdsmi_get_gpu_asic_info);
  SMI_DEVICE(handle, device);
  if (info == nullptr) return AMDSMI_STATUS_INVAL;
  const sim::DeviceRow& row = sim::smi_row(device);
  *info = {};
  std::snprintf(info->name, sizeof info->name, "%.*s", static_cast<int>(sizeof info->name - 1),
                row.name);
  info->vendor_id = row.pci_id & 0xffff;
  info->device_id = row.pci_id >> 16;
#if SIM_AMDSMI_VERSION >= 26
  info->compute_units = row.multiprocessors;
  info->target = row.gfx_target_version;
#endif
  return AMDSMI_STATUS_SUCCESS;
}

#if SIM_AMDSMI_VERSION >= 25
SIM_API amdsmi_status_t amdsmi_get_gpu_kfd_info(amdsmi_processor_handle handle,
                                                sim::SmiKfdInfo* info) {
  SMI_CALL(amdsmi_get_gpu_kfd_info);
  SMI_DEVICE(handle, device);
  if (info == nullptr) return AMDSMI_STATUS_INVAL;
  const sim::DeviceRow& row = sim::smi_row(device);
  *info = {
      .gpu_id = row.kfd_gpu_id, .node = row.kfd_node, .partition = row.partition, .reserved = {}};
  return AMDSMI_STATUS_SUCCESS;
}

SIM_API amdsmi_status_t amdsmi_get_gpu_enumeration_info(amdsmi_processor_handle handle,
                                                        sim::SmiEnumeration* info) {
  SMI_CALL(amdsmi_get_gpu_enumeration_info);
  SMI_DEVICE(handle, device);
  if (info == nullptr) return AMDSMI_STATUS_INVAL;
  const auto number = static_cast<uint32_t>(device);
  *info = {.drm_render = 128 + number,
           .drm_card = number,
           .hsa_id = number + 1,
           .hip_id = number,
           .hip_uuid = {},
           .oam_id = number,
           .physical_acc_id = number};
  std::snprintf(info->hip_uuid, sizeof info->hip_uuid, "%s",
                sim::rsmi_node().uuid(sim::rsmi_device(number)).c_str());
  return AMDSMI_STATUS_SUCCESS;
}
#endif
