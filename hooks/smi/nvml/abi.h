// The part of NVML's ABI that the hooks need: our own declarations, which tests/abi compares with
// nvml.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fracgpu::nvml {

using nvmlReturn_t = int;
using nvmlDevice_t = struct DeviceHandle*;

inline constexpr nvmlReturn_t kSuccess = 0;                 // NVML_SUCCESS
inline constexpr nvmlReturn_t kUninitialized = 1;           // NVML_ERROR_UNINITIALIZED
inline constexpr nvmlReturn_t kNotSupported = 3;            // NVML_ERROR_NOT_SUPPORTED
inline constexpr nvmlReturn_t kNoPermission = 4;            // NVML_ERROR_NO_PERMISSION
inline constexpr nvmlReturn_t kNotFound = 6;                // NVML_ERROR_NOT_FOUND
inline constexpr nvmlReturn_t kInsufficientSize = 7;        // NVML_ERROR_INSUFFICIENT_SIZE
inline constexpr nvmlReturn_t kResetRequired = 16;          // NVML_ERROR_RESET_REQUIRED
inline constexpr nvmlReturn_t kInUse = 19;                  // NVML_ERROR_IN_USE
inline constexpr nvmlReturn_t kInsufficientResources = 23;  // NVML_ERROR_INSUFFICIENT_RESOURCES

// All sizes are in bytes.
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
// What the driver keeps about a process, even after it ended. Only with accounting mode on.
struct nvmlAccountingStats_t {
  unsigned int gpuUtilization, memoryUtilization;
  unsigned long long maxMemoryUsage;  // in bytes
  unsigned long long time, startTime;
  unsigned int isRunning;
  unsigned int reserved[5];
};
struct nvmlAccountingStats_v2_t {
  unsigned int pid, isRunning, gpuUtilization, memoryUtilization;
  unsigned long long maxMemoryUsage;
  unsigned int sampleCount;
  unsigned long long sumGpuUtil, sumFbUtil, time, startTime;
};
struct nvmlConfComputeMemSizeInfo_t {
  unsigned long long protectedMemSizeKib, unprotectedMemSizeKib;
};
inline constexpr unsigned long long kNotAvailable = ~0ull;

// MIG: how a GPU is divided. Memory is in MiB.
using nvmlGpuInstance_t = struct GpuInstanceHandle*;
using nvmlComputeInstance_t = struct ComputeInstanceHandle*;
struct nvmlGpuInstancePlacement_t {
  unsigned int start, size;
};
struct nvmlGpuInstanceProfileInfo_t {
  unsigned int id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount, copyEngineCount;
  unsigned int decoderCount, encoderCount, jpegCount, ofaCount;
  unsigned long long memorySizeMB;
};
struct nvmlGpuInstanceProfileInfo_v2_t {
  unsigned int version, id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount;
  unsigned int copyEngineCount, decoderCount, encoderCount, jpegCount, ofaCount;
  unsigned long long memorySizeMB;
  char name[96];  // "MIG 2g.20gb", with what sets it apart: "MIG 1g.10gb+me"
};
struct nvmlGpuInstanceInfo_t {
  nvmlDevice_t device;
  unsigned int id, profileId;
  nvmlGpuInstancePlacement_t placement;
};
struct nvmlComputeInstanceProfileInfo_t {
  unsigned int id, sliceCount, instanceCount, multiprocessorCount, sharedCopyEngineCount;
  unsigned int sharedDecoderCount, sharedEncoderCount, sharedJpegCount, sharedOfaCount;
};

inline constexpr unsigned kMemoryV2 = 0x02000028;      // version of nvmlMemory_v2_t
inline constexpr unsigned kDetailListV1 = 0x01000018;  // version of nvmlProcessDetailList_v1_t
inline constexpr unsigned kProfileV2 = 0x02000098;     // version of nvmlGpuInstanceProfileInfo_v2_t
inline constexpr unsigned kNoInstance = ~0u;           // an instance id without MIG

inline constexpr unsigned kUuidBytes = 96;  // NVML_DEVICE_UUID_V2_BUFFER_SIZE

}  // namespace fracgpu::nvml
