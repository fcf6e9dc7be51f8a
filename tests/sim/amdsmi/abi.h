// The part of libamd_smi's interface that is simulated, written from its public headers, in the
// layout of the version that the library is built as: SIM_AMDSMI_VERSION is the number of the
// soname. 0 is Debian's of ROCm 6.1.2, 24 stands for 6.1.0, whose lists hold PIDs alone, and 28 for
// one that nobody knows yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "sim/rocmsmi/abi.h"

enum amdsmi_status_t : uint32_t {
  AMDSMI_STATUS_SUCCESS = 0,
  AMDSMI_STATUS_INVAL = 1,
  AMDSMI_STATUS_NOT_SUPPORTED = 2,
  AMDSMI_STATUS_NO_PERM = 10,
  AMDSMI_STATUS_OUT_OF_RESOURCES = 15,
  AMDSMI_STATUS_BUSY = 30,
  AMDSMI_STATUS_NOT_FOUND = 31,
  AMDSMI_STATUS_NOT_INIT = 32,
  AMDSMI_STATUS_DRIVER_NOT_LOADED = 34,
  AMDSMI_STATUS_INSUFFICIENT_SIZE = 41,
  AMDSMI_STATUS_AMDGPU_RESTART_ERR = 54,
  AMDSMI_STATUS_SETTING_UNAVAILABLE = 55,
};

using amdsmi_processor_handle = void*;
using amdsmi_socket_handle = void*;

namespace sim {

inline constexpr int kSmiVersion = SIM_AMDSMI_VERSION;
inline constexpr bool kOldSmi = kSmiVersion < 26;
inline constexpr bool kListsPids = kSmiVersion == 24;
inline constexpr bool kShortNames = kSmiVersion < 25;
inline constexpr size_t kSmiText = kShortNames ? 32 : 256;

struct SmiEngineUsage {
  uint64_t gfx, enc;
  uint32_t reserved[12];
};
struct SmiMemoryUsage {
  uint64_t gtt, cpu, vram;
  uint32_t reserved[10];
};

struct SmiProcess {
  char name[kSmiText];
  uint32_t pid;
  uint64_t memory;
  SmiEngineUsage engines;
  SmiMemoryUsage usage;
  char container[kSmiText];
  uint32_t reserved[kShortNames ? 4 : 12];
};
static_assert(sizeof(SmiProcess) == (kShortNames ? 224 : 704));

struct SmiProcessOnDevice {
  uint32_t device;
  uint64_t memory;
  SmiEngineUsage engines;
  SmiMemoryUsage usage;
  uint32_t reserved[12];
};
static_assert(sizeof(SmiProcessOnDevice) == 192);

struct SmiProcessOfPid {
  uint32_t pid;
  char name[256], container[256];
  uint32_t device_count;
  SmiProcessOnDevice devices[32];
};
static_assert(sizeof(SmiProcessOfPid) == 6664);

struct OldVramInfo {
  uint32_t type, vendor;
  uint64_t size_mib;
};
struct NewVramInfo {
  uint32_t type;
  char vendor[256];
  uint64_t size_mib;
  uint32_t bit_width;
  uint64_t bandwidth, reserved[37];
};
static_assert(sizeof(NewVramInfo) == 584);

struct SmiVramUsage {
  uint32_t total_mib, used_mib, reserved[2];
};

struct SmiComputeProcess {
  uint32_t pid, pasid;
  uint64_t vram, sdma;
  uint32_t cu_occupancy, evicted_ms;
};

struct OldAsicInfo {
  char name[64];
  uint32_t vendor_id;
  char vendor_name[64];
  uint32_t subvendor_id;
  uint64_t device_id;
  uint32_t revision;
  char serial[32];
  uint16_t oam_id, reserved[37];
};
static_assert(sizeof(OldAsicInfo) == 256);
struct NewAsicInfo {
  char name[256];
  uint32_t vendor_id;
  char vendor_name[256];
  uint32_t subvendor_id;
  uint64_t device_id;
  uint32_t revision;
  char serial[256];
  uint32_t oam_id, compute_units;
  uint64_t target;
  uint32_t subsystem_id;
  uint64_t flags;
  uint32_t reserved[18];
};
static_assert(sizeof(NewAsicInfo) == 896);
using SmiAsicInfo = std::conditional_t<kOldSmi, OldAsicInfo, NewAsicInfo>;

struct SmiKfdInfo {
  uint64_t gpu_id;
  uint32_t node, partition, reserved[12];
};

// How a GPU may be divided, as of 6.4.
enum class SmiComputeMode : uint32_t { kInvalid, kSpx, kDpx, kTpx, kQpx, kCpx };

inline constexpr size_t kMostProfiles = 32, kMostResources = 32, kMostParts = 8, kMostRanges = 32;
struct SmiMemoryConfig {
  uint32_t ranges_had;  // bits: NPS1, NPS2, NPS4, NPS8
  uint32_t mode;        // the number of ranges
  uint32_t range_count;
  struct Range {
    uint32_t type;
    uint64_t start, end;
  } range[kMostRanges];
  uint64_t reserved[11];
};
static_assert(sizeof(SmiMemoryConfig) == 872);

struct SmiComputeProfile {
  SmiComputeMode mode;
  uint32_t partitions, ranges_had, index, resource_count;
  uint32_t resource[kMostParts][kMostResources];
  uint64_t reserved[13];
};
static_assert(sizeof(SmiComputeProfile) == 1152);

struct SmiResource {
  uint32_t profile;
  uint32_t type;  // XCC, encoder, decoder, DMA, JPEG
  uint32_t instances, shared_by;
  uint64_t reserved[6];
};
struct SmiComputeConfig {
  uint32_t profile_count, resource_count;
  SmiResource resource[kMostResources];
  uint32_t default_profile;
  SmiComputeProfile profile[kMostProfiles];
  uint64_t reserved[30];
};
static_assert(sizeof(SmiComputeConfig) == 39168);

struct SmiEnumeration {
  uint32_t drm_render, drm_card, hsa_id, hip_id;
  char hip_uuid[256];
  uint32_t oam_id, physical_acc_id;
};
static_assert(sizeof(SmiEnumeration) == 280);

}  // namespace sim
