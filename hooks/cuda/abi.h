// The part of the CUDA driver's ABI that the hooks need: types and result codes.
//
// The declarations are our own, so that one library serves CUDA 11 to 13 and builds without a
// toolkit. tests/abi compares each of them with each version of cuda.h that the build finds.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fracgpu::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUdeviceptr_v1 = unsigned int;  // used by the API before CUDA 3.2
using CUcontext = struct ContextHandle*;

using CUstream = struct StreamHandle*;
using CUevent = struct EventHandle*;
using CUmemoryPool = struct PoolHandle*;
using CUmemGenericAllocationHandle = unsigned long long;
using CUarray = struct ArrayHandle*;
using CUmipmappedArray = struct MipmappedArrayHandle*;
using CUgraph = struct GraphHandle*;
using CUgraphNode = struct GraphNodeHandle*;
using CUgraphExec = struct GraphExecHandle*;
using CUmodule = struct ModuleHandle*;
using CUlibrary = struct LibraryHandle*;
using CUfunction = struct FunctionHandle*;
using CUkernel = struct KernelHandle*;
using CUgreenCtx = struct GreenContextHandle*;

struct CUuuid {
  char bytes[16];
};

struct CUipcMemHandle {
  char reserved[64];
};

struct CUmemLocation {
  int type;
  int id;  // the device's ordinal, if the type is a device
};
inline constexpr int kLocationNone = 0;             // CU_MEM_LOCATION_TYPE_INVALID
inline constexpr int kLocationDevice = 1;           // CU_MEM_LOCATION_TYPE_DEVICE
inline constexpr int kLocationHostNumaCurrent = 4;  // CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT

// Structs end in `unused` where versions differ and the hooks read nothing.
struct CUmemAllocationProp {
  int type;
  int requestedHandleTypes;
  CUmemLocation location;
  void* win32HandleMetaData;
  unsigned char unused[8];
};
struct CUmemPoolProps {
  int allocType;
  int handleTypes;
  CUmemLocation location;
  void* win32SecurityAttributes;
  unsigned char unused[64];
};
struct CUmemPoolPtrExportData {
  unsigned char reserved[64];
};
struct CUmemFabricHandle {
  unsigned char data[64];
};
inline constexpr int kPosixDescriptor = 1;    // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
inline constexpr int kFabric = 8;             // CU_MEM_HANDLE_TYPE_FABRIC
inline constexpr int kDmaBuf = 1;             // CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
inline constexpr int kManaged = 2;            // CU_MEM_ALLOCATION_TYPE_MANAGED
inline constexpr int kPoolFollowsEvents = 1;  // CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
inline constexpr int kPoolReserved = 5;       // CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
inline constexpr int kPoolUsed = 7;           // CU_MEMPOOL_ATTR_USED_MEM_CURRENT
inline constexpr int kPointerDevice = 9;      // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
inline constexpr int kPointerMapping = 18;    // CU_POINTER_ATTRIBUTE_MAPPING_SIZE
inline constexpr int kGraphReserved = 2;      // CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT

inline constexpr int kNotCapturing = 0;    // CU_STREAM_CAPTURE_STATUS_NONE
inline constexpr int kCaptureRelaxed = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED

// One piece of a sparse array that is mapped to memory or unmapped.
struct CUarrayMapInfo {
  int resourceType;
  union {
    CUmipmappedArray mipmap;
    CUarray array;
  } resource;
  int subresourceType;
  union {
    struct {
      unsigned int level, layer, offsetX, offsetY, offsetZ, extentWidth, extentHeight, extentDepth;
    } sparseLevel;
    struct {
      unsigned int layer;
      unsigned long long offset, size;
    } miptail;
  } subresource;
  int memOperationType;
  int memHandleType;
  union {
    CUmemGenericAllocationHandle memHandle;
  } memHandle;
  unsigned long long offset;
  unsigned int deviceBitMask;
  unsigned int flags;
  unsigned int reserved[2];
};
inline constexpr int kOperationMap = 1;    // CU_MEM_OPERATION_TYPE_MAP
inline constexpr int kOperationUnmap = 2;  // CU_MEM_OPERATION_TYPE_UNMAP
inline constexpr int kMiptail = 1;         // CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL

// Extents are in elements. A height or depth of 0 means that the array lacks that dimension.
struct CUDA_ARRAY_DESCRIPTOR {
  size_t Width, Height;
  int Format;
  unsigned int NumChannels;
};
struct CUDA_ARRAY_DESCRIPTOR_v1 {
  unsigned int Width, Height;
  int Format;
  unsigned int NumChannels;
};
struct CUDA_ARRAY3D_DESCRIPTOR {
  size_t Width, Height, Depth;
  int Format;
  unsigned int NumChannels;
  unsigned int Flags;
};
struct CUDA_ARRAY3D_DESCRIPTOR_v1 {
  unsigned int Width, Height, Depth;
  int Format;
  unsigned int NumChannels;
  unsigned int Flags;
};
inline constexpr unsigned int kArraySparse = 0x40;    // CUDA_ARRAY3D_SPARSE
inline constexpr unsigned int kArrayDeferred = 0x80;  // CUDA_ARRAY3D_DEFERRED_MAPPING
inline constexpr unsigned int kArrayCubemap = 0x04;   // CUDA_ARRAY3D_CUBEMAP
inline constexpr unsigned int kArrayLayered = 0x01;   // CUDA_ARRAY3D_LAYERED

struct CUDA_ARRAY_MEMORY_REQUIREMENTS {
  size_t size;       // bytes
  size_t alignment;  // bytes
  unsigned int reserved[4];
};

struct CUDA_GRAPH_INSTANTIATE_PARAMS {
  unsigned long long flags;
  CUstream hUploadStream;
  CUgraphNode hErrNode_out;
  int result_out;
};
inline constexpr unsigned int kUpload = 2;   // CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD
inline constexpr int kInstantiateError = 1;  // CUDA_GRAPH_INSTANTIATE_ERROR
struct CUDA_MEM_ALLOC_NODE_PARAMS {
  CUmemPoolProps poolProps;
  const void* accessDescs;
  size_t accessDescCount;
  size_t bytesize;
  CUdeviceptr dptr;
};
inline constexpr int kKernelNode = 0;  // CU_GRAPH_NODE_TYPE_KERNEL
inline constexpr int kGraphNode = 4;   // CU_GRAPH_NODE_TYPE_GRAPH
inline constexpr int kAllocNode = 10;  // CU_GRAPH_NODE_TYPE_MEM_ALLOC
inline constexpr int kFreeNode = 11;   // CU_GRAPH_NODE_TYPE_MEM_FREE

inline constexpr int kLimitStack = 0;   // CU_LIMIT_STACK_SIZE
inline constexpr int kLimitPrintf = 1;  // CU_LIMIT_PRINTF_FIFO_SIZE
inline constexpr int kLimitHeap = 2;    // CU_LIMIT_MALLOC_HEAP_SIZE
inline constexpr int kLimitDepth = 3;   // CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH

inline constexpr int kLocalBytes = 3;   // CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES
inline constexpr int kLazyLoading = 2;  // CU_MODULE_LAZY_LOADING

inline constexpr int kMultiprocessors = 16;  // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
inline constexpr int kThreadsPerMultiprocessor =
    39;  // CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR

inline constexpr CUresult kSuccess = 0;               // CUDA_SUCCESS
inline constexpr CUresult kInvalidValue = 1;          // CUDA_ERROR_INVALID_VALUE
inline constexpr CUresult kOutOfMemory = 2;           // CUDA_ERROR_OUT_OF_MEMORY
inline constexpr CUresult kNotInitialized = 3;        // CUDA_ERROR_NOT_INITIALIZED
inline constexpr CUresult kDeinitialized = 4;         // CUDA_ERROR_DEINITIALIZED
inline constexpr CUresult kNoDevice = 100;            // CUDA_ERROR_NO_DEVICE
inline constexpr CUresult kInvalidDevice = 101;       // CUDA_ERROR_INVALID_DEVICE
inline constexpr CUresult kInvalidContext = 201;      // CUDA_ERROR_INVALID_CONTEXT
inline constexpr CUresult kNotReady = 600;            // CUDA_ERROR_NOT_READY
inline constexpr CUresult kContextIsDestroyed = 709;  // CUDA_ERROR_CONTEXT_IS_DESTROYED
inline constexpr CUresult kNotSupported = 801;        // CUDA_ERROR_NOT_SUPPORTED
inline constexpr CUresult kCaptureInvalidated = 901;  // CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
inline constexpr CUresult kCaptureUnjoined = 904;     // CUDA_ERROR_STREAM_CAPTURE_UNJOINED

}  // namespace fracgpu::cuda
