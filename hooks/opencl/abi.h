// The part of OpenCL's ABI that the hooks need: types and result codes.
//
// The declarations are our own, so that one library serves every version and builds without
// headers. tests/abi compares each of them with Khronos' headers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fracgpu::opencl {

using cl_int = int;
using cl_uint = unsigned int;
using cl_bitfield = unsigned long;

using cl_platform_id = struct PlatformHandle*;
using cl_device_id = struct DeviceHandle*;
using cl_context = struct ContextHandle*;
using cl_command_queue = struct QueueHandle*;
using cl_mem = struct MemoryHandle*;
using cl_event = struct EventHandle*;
using cl_program = struct ProgramHandle*;
using cl_kernel = struct KernelHandle*;

using cl_context_properties = intptr_t;
using cl_mem_properties = cl_bitfield;

struct cl_image_format {
  cl_uint image_channel_order;
  cl_uint image_channel_data_type;
};
struct cl_image_desc {
  cl_uint image_type;
  size_t image_width;
  size_t image_height;
  size_t image_depth;
  size_t image_array_size;
  size_t image_row_pitch;
  size_t image_slice_pitch;
  cl_uint num_mip_levels;
  cl_uint num_samples;
  cl_mem mem_object;
};

inline constexpr cl_int kSuccess = 0;                 // CL_SUCCESS
inline constexpr cl_int kAllocationFailure = -4;      // CL_MEM_OBJECT_ALLOCATION_FAILURE
inline constexpr cl_int kOutOfHostMemory = -6;        // CL_OUT_OF_HOST_MEMORY
inline constexpr cl_uint kPlatformVersion = 0x0901;   // CL_PLATFORM_VERSION
inline constexpr cl_uint kComputeUnits = 0x1002;      // CL_DEVICE_MAX_COMPUTE_UNITS
inline constexpr cl_uint kMaxAllocation = 0x1010;     // CL_DEVICE_MAX_MEM_ALLOC_SIZE
inline constexpr cl_uint kGlobalMemory = 0x101F;      // CL_DEVICE_GLOBAL_MEM_SIZE
inline constexpr cl_uint kDeviceUuid = 0x106A;        // CL_DEVICE_UUID_KHR
inline constexpr cl_uint kContextDevices = 0x1081;    // CL_CONTEXT_DEVICES
inline constexpr intptr_t kContextPlatform = 0x1084;  // CL_CONTEXT_PLATFORM
inline constexpr cl_uint kQueueContext = 0x1090;      // CL_QUEUE_CONTEXT
inline constexpr cl_uint kQueueDevice = 0x1091;       // CL_QUEUE_DEVICE
inline constexpr cl_uint kQueueReferences = 0x1092;   // CL_QUEUE_REFERENCE_COUNT
inline constexpr cl_uint kMemoryReferences = 0x1105;  // CL_MEM_REFERENCE_COUNT
inline constexpr cl_uint kKernelContext = 0x1193;     // CL_KERNEL_CONTEXT
inline constexpr cl_uint kPrivateMemory = 0x11B4;     // CL_KERNEL_PRIVATE_MEM_SIZE
inline constexpr cl_uint kComputeMajor = 0x4000;      // CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV
inline constexpr cl_uint kComputeMinor = 0x4001;      // CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV
inline constexpr cl_uint kImage2d = 0x10F1;           // CL_MEM_OBJECT_IMAGE2D
inline constexpr cl_uint kImage3d = 0x10F2;           // CL_MEM_OBJECT_IMAGE3D

}  // namespace fracgpu::opencl
