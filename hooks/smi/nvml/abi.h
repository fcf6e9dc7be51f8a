// NVML's ABI as far as the hooks need it: our own declarations, compared with nvml.h by tests/abi.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fracgpu::nvml {

using nvmlReturn_t = int;
using nvmlDevice_t = struct DeviceHandle*;

inline constexpr nvmlReturn_t kSuccess = 0;           // NVML_SUCCESS
inline constexpr nvmlReturn_t kUninitialized = 1;     // NVML_ERROR_UNINITIALIZED
inline constexpr nvmlReturn_t kNotSupported = 3;      // NVML_ERROR_NOT_SUPPORTED
inline constexpr nvmlReturn_t kNotFound = 6;          // NVML_ERROR_NOT_FOUND
inline constexpr nvmlReturn_t kInsufficientSize = 7;  // NVML_ERROR_INSUFFICIENT_SIZE

// All sizes in bytes.
struct nvmlMemory_t {
  unsigned long long total, free, used;
};
struct nvmlMemory_v2_t {
  unsigned int version;
  unsigned long long total, reserved, free, used;
};
struct nvmlProcessInfo_v1_t {
  unsigned int pid;
  unsigned long long usedGpuMemory;
};
struct nvmlProcessInfo_v2_t {
  unsigned int pid;
  unsigned long long usedGpuMemory;  // all ones: the driver does not know
  unsigned int gpuInstanceId, computeInstanceId;
};
struct nvmlProcessDetail_v1_t {
  unsigned int pid;
  unsigned long long usedGpuMemory;
  unsigned int gpuInstanceId, computeInstanceId;
  unsigned long long usedGpuCcProtectedMemory;
};
struct nvmlProcessDetailList_v1_t {
  unsigned int version, mode, numProcArrayEntries;
  nvmlProcessDetail_v1_t* procArray;
};
struct nvmlDeviceAttributes_t {
  unsigned int multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount;
  unsigned int sharedJpegCount, sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
  unsigned long long memorySizeMB;  // in MiB
};
struct nvmlPciInfo_t {
  char busIdLegacy[16];
  unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
  char busId[32];
};
inline constexpr unsigned long long kNotAvailable = ~0ull;

inline constexpr unsigned kMemoryV2 = 0x02000028;      // version of nvmlMemory_v2_t
inline constexpr unsigned kDetailListV1 = 0x01000018;  // version of nvmlProcessDetailList_v1_t
inline constexpr unsigned kNoInstance = ~0u;           // an instance id where there is no MIG

inline constexpr unsigned kUuidBytes = 96;  // NVML_DEVICE_UUID_V2_BUFFER_SIZE

}  // namespace fracgpu::nvml
