// The part of the HSA runtime's ABI that the hooks need: our own declarations. Every build compares
// them with each hsa.h and hsa_ext_amd.h that it finds (tests/abi). The types keep the vendor's
// names, so that the comparison needs no dictionary. A constant's vendor name is in the comment
// after it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fracgpu::hsa {

using hsa_status_t = int;
inline constexpr hsa_status_t kSuccess = 0;              // HSA_STATUS_SUCCESS
inline constexpr hsa_status_t kBreak = 1;                // HSA_STATUS_INFO_BREAK
inline constexpr hsa_status_t kOutOfResources = 0x1008;  // HSA_STATUS_ERROR_OUT_OF_RESOURCES
inline constexpr hsa_status_t kNotInitialized = 0x100b;  // HSA_STATUS_ERROR_NOT_INITIALIZED

struct hsa_agent_t {
  uint64_t handle;
};
struct hsa_region_t {
  uint64_t handle;
};
struct hsa_amd_memory_pool_t {
  uint64_t handle;
};
struct hsa_amd_vmem_alloc_handle_t {
  uint64_t handle;
};
struct hsa_executable_t {
  uint64_t handle;
};
struct hsa_code_object_reader_t {
  uint64_t handle;
};
struct hsa_code_object_t {
  uint64_t handle;
};
struct hsa_loaded_code_object_t {
  uint64_t handle;
};
struct hsa_amd_ipc_memory_t {
  uint32_t handle[8];
};
struct hsa_fabric_handle_t {
  uint8_t handle[16];
};
struct hsa_queue_t;

inline constexpr uint8_t kComputeQueue = 0;  // HSA_AMD_QUEUE_ENGINE_COMPUTE

struct hsa_amd_queue_create_desc_t {
  uint16_t version;
  uint16_t flags;  // 0: its packets are in host memory
  uint8_t engine_type;
  uint8_t reserved_header[3];
  uint32_t queue_size_bytes;
  int priority;
  void* callback;
  void* callback_data;
  hsa_queue_t* queue;  // written; null if the queue cannot be made
  union {
    struct {
      const uint32_t* cu_mask;
      uint32_t type;
      uint32_t private_segment_size;  // bytes of each thread
      uint32_t cu_mask_count;
    } compute;
    uint8_t reserved[32];
  } engine;
  uint32_t traffic_class;
  uint8_t reserved[20];
};

inline constexpr int kAgentDevice = 17;               // HSA_AGENT_INFO_DEVICE
inline constexpr int kDeviceIsGpu = 1;                // HSA_DEVICE_TYPE_GPU
inline constexpr int kAgentBdfId = 0xa006;            // HSA_AMD_AGENT_INFO_BDFID
inline constexpr int kAgentDomain = 0xa00f;           // HSA_AMD_AGENT_INFO_DOMAIN
inline constexpr int kAgentUuid = 0xa011;             // HSA_AMD_AGENT_INFO_UUID
inline constexpr int kAgentMemoryAvailable = 0xa015;  // HSA_AMD_AGENT_INFO_MEMORY_AVAIL
inline constexpr int kAgentDriverUid = 0xa112;        // HSA_AMD_AGENT_INFO_DRIVER_UID, since 5.7

inline constexpr int kPoolSegment = 0;             // HSA_AMD_MEMORY_POOL_INFO_SEGMENT
inline constexpr int kPoolSize = 2;                // HSA_AMD_MEMORY_POOL_INFO_SIZE
inline constexpr int kPoolLargestAllocation = 16;  // HSA_AMD_MEMORY_POOL_INFO_ALLOC_MAX_SIZE
inline constexpr int kPoolIsGlobal = 0;            // HSA_AMD_SEGMENT_GLOBAL

inline constexpr int kRegionSegment = 0;            // HSA_REGION_INFO_SEGMENT
inline constexpr int kRegionSize = 2;               // HSA_REGION_INFO_SIZE
inline constexpr int kRegionLargestAllocation = 4;  // HSA_REGION_INFO_ALLOC_MAX_SIZE
inline constexpr int kRegionIsGlobal = 0;           // HSA_REGION_SEGMENT_GLOBAL

struct hsa_amd_pointer_info_t {
  uint32_t size;  // of this struct
  int type;
  void* agentBaseAddress;
  void* hostBaseAddress;
  size_t sizeInBytes;
  void* userData;
  hsa_agent_t agentOwner;
  uint32_t global_flags;
};

}  // namespace fracgpu::hsa
