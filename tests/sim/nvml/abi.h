// The part of the NVML ABI that the simulator speaks, declared in its own words.
// Sizes and offsets are asserted; a machine without the vendor's header builds it. Device handles
// point at small records inside the library, as opaque to callers as the vendor's.
#pragma once

#include <cstddef>
#include <cstdint>

using nvmlReturn_t = int;
using nvmlDevice_t = struct SimNvmlDevice*;
using nvmlGpuInstance_t = struct SimGpuInstance*;
using nvmlComputeInstance_t = struct SimComputeInstance*;

enum : nvmlReturn_t {
  NVML_SUCCESS = 0,
  NVML_ERROR_UNINITIALIZED = 1,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_NO_PERMISSION = 4,
  NVML_ERROR_NOT_FOUND = 6,
  NVML_ERROR_INSUFFICIENT_SIZE = 7,
  NVML_ERROR_DRIVER_NOT_LOADED = 9,
  NVML_ERROR_TIMEOUT = 10,
  NVML_ERROR_FUNCTION_NOT_FOUND = 13,
  NVML_ERROR_RESET_REQUIRED = 16,
  NVML_ERROR_IN_USE = 19,
  NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
  NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
  NVML_ERROR_UNKNOWN = 999,
};

struct nvmlMemory_t {
  unsigned long long total, free, used;
};
struct nvmlMemory_v2_t {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct nvmlBAR1Memory_t {
  unsigned long long total, free, used;
};
struct nvmlProcessInfo_v1_t {
  unsigned pid;
  unsigned long long used;
};
struct nvmlProcessInfo_v2_t {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};
struct nvmlProcessDetail_t {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
  unsigned long long protected_used;
};
struct nvmlProcessDetailList_t {
  unsigned version, mode, count;
  nvmlProcessDetail_t* entries;
};
struct nvmlDeviceAttributes_t {
  unsigned multiprocessors, copy_engines, decoders, encoders, jpegs, ofas, gpu_slices,
      compute_slices;
  unsigned long long memory_mib;
};
struct nvmlAccountingStats_t {
  unsigned gpu_percent = 0, memory_percent = 0;
  unsigned long long most_memory = 0, time = 0, start = 0;
  unsigned running = 0, reserved[5] = {};
};
struct nvmlAccountingStats_v2_t {
  unsigned pid = 0, running = 0, gpu_percent = 0, memory_percent = 0;
  unsigned long long most_memory = 0;
  unsigned samples = 0;
  unsigned long long gpu_sum = 0, memory_sum = 0, time = 0, start = 0;
};
struct nvmlConfComputeMemSizeInfo_t {
  unsigned long long protected_kib, unprotected_kib;
};
// A place: of a GPU instance in memory slices, of a compute instance in compute slices.
struct nvmlGpuInstancePlacement_t {
  unsigned start, size;
};
using nvmlComputeInstancePlacement_t = nvmlGpuInstancePlacement_t;
struct nvmlGpuInstanceProfileInfo_t {
  unsigned id, p2p, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpegs,
      ofas;
  unsigned long long memory_mib;
};
struct nvmlGpuInstanceProfileInfo_v2_t {
  unsigned version, id, p2p, slices, instances, multiprocessors, copy_engines, decoders, encoders,
      jpegs, ofas;
  unsigned long long memory_mib;
  char name[96];
};
struct nvmlGpuInstanceProfileInfo_v3_t {
  unsigned version, id, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpegs,
      ofas;
  unsigned long long memory_mib;
  char name[96];
  unsigned capabilities;
};
struct nvmlGpuInstanceInfo_t {
  nvmlDevice_t device;
  unsigned id, profile;
  nvmlGpuInstancePlacement_t placement;
};
struct nvmlComputeInstanceProfileInfo_t {
  unsigned id, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
};
struct nvmlComputeInstanceProfileInfo_v2_t {
  unsigned version;
  nvmlComputeInstanceProfileInfo_t info;
  char name[96];
};
struct nvmlComputeInstanceProfileInfo_v3_t {
  nvmlComputeInstanceProfileInfo_v2_t front;
  unsigned capabilities;
};
struct nvmlComputeInstanceInfo_t {
  nvmlDevice_t device;
  nvmlGpuInstance_t gpu_instance;
  unsigned id, profile;
  nvmlComputeInstancePlacement_t placement;
};
struct nvmlUtilization_t {
  unsigned gpu, memory;
};
struct nvmlPciInfo_v2_t {
  char bus_id[16];
  unsigned domain, bus, device, pci_id, subsystem, reserved[4];
};
struct nvmlPciInfo_v3_t {
  char legacy_bus_id[16];
  unsigned domain, bus, device, pci_id, subsystem;
  char bus_id[32];
};

inline constexpr unsigned kMemoryV2 = 0x02000028;
inline constexpr unsigned kDetailListV1 = 0x01000018;
template <typename Info>
constexpr unsigned struct_version(unsigned version) {
  return static_cast<unsigned>(sizeof(Info)) | version << 24;
}
inline constexpr unsigned kNoInstance = 0xFFFFFFFF;

static_assert(sizeof(nvmlMemory_t) == 24 && offsetof(nvmlMemory_t, used) == 16);
static_assert(sizeof(nvmlMemory_v2_t) == 40 && offsetof(nvmlMemory_v2_t, total) == 8);
static_assert(offsetof(nvmlMemory_v2_t, free) == 24 && offsetof(nvmlMemory_v2_t, used) == 32);
static_assert(sizeof(nvmlProcessInfo_v1_t) == 16 && sizeof(nvmlProcessInfo_v2_t) == 24);
static_assert(sizeof(nvmlProcessDetail_t) == 32 && sizeof(nvmlProcessDetailList_t) == 24);
static_assert(sizeof(nvmlPciInfo_v3_t) == 68);
static_assert(sizeof(nvmlDeviceAttributes_t) == 40);
static_assert(sizeof(nvmlGpuInstanceProfileInfo_t) == 48);
static_assert(sizeof(nvmlGpuInstanceProfileInfo_v2_t) == 152);
static_assert(sizeof(nvmlGpuInstanceProfileInfo_v3_t) == 152);
static_assert(offsetof(nvmlGpuInstanceProfileInfo_v3_t, name) == 48);
static_assert(sizeof(nvmlGpuInstanceInfo_t) == 24);
static_assert(sizeof(nvmlComputeInstanceProfileInfo_t) == 36);
static_assert(sizeof(nvmlComputeInstanceProfileInfo_v2_t) == 136);
static_assert(sizeof(nvmlComputeInstanceProfileInfo_v3_t) == 140);
static_assert(sizeof(nvmlComputeInstanceInfo_t) == 32);

#define SIM_API extern "C" __attribute__((visibility("default")))
