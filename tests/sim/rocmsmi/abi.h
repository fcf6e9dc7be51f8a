// The part of librocm_smi64's interface that is simulated, written from its public documentation.
#pragma once

#include <cstdint>

#define SIM_API extern "C" __attribute__((visibility("default")))

enum rsmi_status_t : uint32_t {
  RSMI_STATUS_SUCCESS = 0,
  RSMI_STATUS_INVALID_ARGS = 1,
  RSMI_STATUS_NOT_SUPPORTED = 2,
  RSMI_STATUS_PERMISSION = 4,
  RSMI_STATUS_OUT_OF_RESOURCES = 5,
  RSMI_STATUS_INIT_ERROR = 8,
  RSMI_STATUS_NOT_FOUND = 10,
  RSMI_STATUS_INSUFFICIENT_SIZE = 11,
  RSMI_STATUS_BUSY = 16,
  RSMI_STATUS_SETTING_UNAVAILABLE = 18,
};

enum rsmi_compute_partition_type_t : uint32_t {
  RSMI_COMPUTE_PARTITION_INVALID,
  RSMI_COMPUTE_PARTITION_SPX,
  RSMI_COMPUTE_PARTITION_DPX,
  RSMI_COMPUTE_PARTITION_TPX,
  RSMI_COMPUTE_PARTITION_QPX,
  RSMI_COMPUTE_PARTITION_CPX,
};

enum rsmi_memory_partition_type_t : uint32_t {
  RSMI_MEMORY_PARTITION_UNKNOWN,
  RSMI_MEMORY_PARTITION_NPS1,
  RSMI_MEMORY_PARTITION_NPS2,
  RSMI_MEMORY_PARTITION_NPS4,
  RSMI_MEMORY_PARTITION_NPS8,
};

enum rsmi_memory_type_t : uint32_t {
  RSMI_MEM_TYPE_VRAM = 0,
  RSMI_MEM_TYPE_VIS_VRAM = 1,
  RSMI_MEM_TYPE_GTT = 2,
};

struct rsmi_process_info_t {
  uint32_t process_id, pasid;
  uint64_t vram_usage, sdma_usage;
  uint32_t cu_occupancy;
};

struct rsmi_version_t {
  uint32_t major, minor, patch;
  const char* build;
};

SIM_API rsmi_status_t rsmi_init(uint64_t flags);
SIM_API rsmi_status_t rsmi_shut_down();
SIM_API rsmi_status_t rsmi_num_monitor_devices(uint32_t* count);
SIM_API rsmi_status_t rsmi_dev_pci_id_get(uint32_t device, uint64_t* bdf);
SIM_API rsmi_status_t rsmi_dev_guid_get(uint32_t device, uint64_t* gpu_id);
SIM_API rsmi_status_t rsmi_dev_memory_total_get(uint32_t device, rsmi_memory_type_t type,
                                                uint64_t* total);
SIM_API rsmi_status_t rsmi_dev_memory_usage_get(uint32_t device, rsmi_memory_type_t type,
                                                uint64_t* used);
SIM_API rsmi_status_t rsmi_compute_process_info_get(rsmi_process_info_t* list, uint32_t* count);
SIM_API rsmi_status_t rsmi_compute_process_info_by_pid_get(uint32_t pid, rsmi_process_info_t* info);
SIM_API rsmi_status_t rsmi_compute_process_info_by_device_get(uint32_t pid, uint32_t device,
                                                              rsmi_process_info_t* info);
SIM_API rsmi_status_t rsmi_compute_process_gpus_get(uint32_t pid, uint32_t* devices,
                                                    uint32_t* count);
SIM_API rsmi_status_t rsmi_dev_compute_partition_get(uint32_t device, char* text, uint32_t length);
SIM_API rsmi_status_t rsmi_dev_memory_partition_get(uint32_t device, char* text, uint32_t length);
SIM_API rsmi_status_t rsmi_dev_compute_partition_set(uint32_t device,
                                                     rsmi_compute_partition_type_t mode);
SIM_API rsmi_status_t rsmi_dev_memory_partition_set(uint32_t device,
                                                    rsmi_memory_partition_type_t mode);
