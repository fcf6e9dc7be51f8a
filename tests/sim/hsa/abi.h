// The HSA interface that the simulated runtime answers to: the vendor's headers of 5.2, and by our
// own hand what later releases added. Values and layouts are those of hsa_ext_amd.h 1.32 (after
// ROCm 7.2); the libraries of every release before that have use the same ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "sim/hsa/vendor_headers.h"

#define SIM_API extern "C" __attribute__((visibility("default")))

namespace sim {

// Attributes that the headers of 5.2 do not have yet.
enum : uint32_t {
  kAgentMemoryAvail = 0xA015,
  kAgentTimestampFrequency = 0xA016,
  kAgentAsicFamilyId = 0xA107,
  kAgentUcodeVersion = 0xA108,
  kAgentSdmaUcodeVersion = 0xA109,
  kAgentSdmaEngines = 0xA10A,
  kAgentSdmaXgmiEngines = 0xA10B,
  kAgentIommuSupport = 0xA110,
  kAgentXccCount = 0xA111,
  kAgentDriverUid = 0xA112,
  kAgentNearestCpu = 0xA113,
  kAgentMemoryProperties = 0xA114,
  kAgentScratchLimitMax = 0xA116,
  kAgentScratchLimitCurrent = 0xA117,
  kAgentClockCounters = 0xA118,
};
enum : uint32_t {
  kPoolLocation = 17,    // uint32_t: 0 host, 1 GPU
  kPoolRecGranule = 18,  // size_t
};
enum : uint32_t {
  kSystemMwaitx = 0x203,
  kSystemDmabuf = 0x204,
  kSystemVmem = 0x205,
  kSystemXnack = 0x206,
  kSystemExtMajor = 0x207,
  kSystemExtMinor = 0x208,
};
enum : uint32_t { kStatusResourceBusy = 46, kStatusNotSupported = 47 };

// hsa_amd_pointer_info_t: callers of older releases give a smaller size.
struct PointerInfo {
  uint32_t size;
  uint32_t type;
  void* agent_base;
  void* host_base;
  size_t bytes;
  void* user_data;
  hsa_agent_t owner;
  uint32_t global_flags;
  bool registered;
};
static_assert(offsetof(PointerInfo, global_flags) ==
              offsetof(hsa_amd_pointer_info_t, global_flags));
enum : uint32_t { kPointerReserved = 5, kPointerVmem = 6 };  // hsa_amd_pointer_type_t, since 6.1

struct VmemHandle {
  uint64_t handle;
};
struct AccessDescription {
  hsa_access_permission_t permissions;
  hsa_agent_t agent;
};
static_assert(sizeof(AccessDescription) == 16);

// hsa_amd_queue_create_desc_t, version 1.
struct QueueDescription {
  uint16_t version, flags;
  uint8_t engine, reserved_header[3];  // engine 0: compute, 1: SDMA
  uint32_t bytes;                      // of the ring
  uint32_t priority;
  void (*callback)(hsa_status_t, hsa_queue_t*, void*);
  void* callback_data;
  hsa_queue_t* queue;
  union {
    struct {
      const uint32_t* mask;
      uint32_t type, private_segment, mask_bits, reserved[3];
    } compute;
    uint8_t any[32];
  };
  uint32_t traffic_class;
  uint8_t reserved[20];
};
static_assert(sizeof(QueueDescription) == 96 && offsetof(QueueDescription, compute) == 40);

struct FabricHandle {
  uint8_t bytes[16];
};
struct SdmaQueue {
  uint64_t handle;
};

// Gives an attribute to who asked for it, in whatever memory that one has for it.
template <typename Value>
hsa_status_t answer(void* out, Value value) {
  std::memcpy(out, &value, sizeof value);
  return HSA_STATUS_SUCCESS;
}

}  // namespace sim
