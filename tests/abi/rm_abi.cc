// Compares hooks/cuda/rm.h with the headers of NVIDIA's kernel modules. It only has to compile.
#include <cstddef>
#include <utility>

#include "class/cl0040.h"
#include "class/cl0080.h"
#include "class/cl2080.h"
#include "ctrl/ctrl0000/ctrl0000gpu.h"
#include "ctrl/ctrl0000/ctrl0000unix.h"
#include "ctrl/ctrl2080/ctrl2080fb.h"
#include "hooks/cuda/rm.h"
#include "nv-ioctl-numbers.h"
#include "nv_escape.h"
#include "nvos.h"
#include "nvstatus.h"

namespace rm = fracgpu::cuda::rm;

#define SAME(ours, theirs) static_assert((ours) == (theirs), #theirs)
#define SAME_FIELD(our_struct, ours, their_struct, theirs)          \
  SAME(offsetof(our_struct, ours), offsetof(their_struct, theirs)); \
  static_assert(sizeof(our_struct::ours) == sizeof(std::declval<their_struct>().theirs), #theirs)

SAME(rm::kType, NV_IOCTL_MAGIC);
SAME(rm::kAllocateMemory, NV_ESC_RM_ALLOC_MEMORY);
SAME(rm::kFree, NV_ESC_RM_FREE);
SAME(rm::kControl, NV_ESC_RM_CONTROL);
SAME(rm::kAllocate, NV_ESC_RM_ALLOC);
SAME(rm::kHeapControl, NV_ESC_RM_VID_HEAP_CONTROL);
SAME(rm::kNoMemory, NV_ERR_NO_MEMORY);
SAME(rm::kDevice, NV01_DEVICE_0);
SAME(rm::kSubdevice, NV20_SUBDEVICE_0);
SAME(rm::kDeviceMemory, NV01_MEMORY_LOCAL_USER);
SAME(rm::kAllocateSize, NVOS32_FUNCTION_ALLOC_SIZE);
SAME(rm::kFreeMemory, NVOS32_FUNCTION_FREE);
SAME(rm::kAddressesAlone, NVOS32_ALLOC_FLAGS_VIRTUAL);
SAME(rm::kLocation, (~0u >> (31 - (1 ? NVOS32_ATTR_LOCATION))) & (~0u << (0 ? NVOS32_ATTR_LOCATION)));
SAME(0, NVOS32_ATTR_LOCATION_VIDMEM);
SAME(rm::kIsSerialized, NVOS64_FLAGS_FINN_SERIALIZED);
SAME(rm::kControlIsSerialized, NVOS54_FLAGS_FINN_SERIALIZED);

SAME(sizeof(rm::Free), sizeof(NVOS00_PARAMETERS));
SAME_FIELD(rm::Free, client, NVOS00_PARAMETERS, hRoot);
SAME_FIELD(rm::Free, parent, NVOS00_PARAMETERS, hObjectParent);
SAME_FIELD(rm::Free, object, NVOS00_PARAMETERS, hObjectOld);
SAME_FIELD(rm::Free, status, NVOS00_PARAMETERS, status);

SAME(sizeof(rm::Allocate), sizeof(NVOS64_PARAMETERS));
SAME_FIELD(rm::Allocate, client, NVOS64_PARAMETERS, hRoot);
SAME_FIELD(rm::Allocate, parent, NVOS64_PARAMETERS, hObjectParent);
SAME_FIELD(rm::Allocate, object, NVOS64_PARAMETERS, hObjectNew);
SAME_FIELD(rm::Allocate, object_class, NVOS64_PARAMETERS, hClass);
SAME_FIELD(rm::Allocate, parameters, NVOS64_PARAMETERS, pAllocParms);
SAME_FIELD(rm::Allocate, flags, NVOS64_PARAMETERS, flags);
SAME_FIELD(rm::Allocate, status, NVOS64_PARAMETERS, status);
SAME_FIELD(rm::Allocate, client, NVOS21_PARAMETERS, hRoot);
SAME_FIELD(rm::Allocate, parent, NVOS21_PARAMETERS, hObjectParent);
SAME_FIELD(rm::Allocate, object, NVOS21_PARAMETERS, hObjectNew);
SAME_FIELD(rm::Allocate, object_class, NVOS21_PARAMETERS, hClass);
SAME_FIELD(rm::Allocate, parameters, NVOS21_PARAMETERS, pAllocParms);
SAME(rm::status_offset(sizeof(NVOS64_PARAMETERS)), offsetof(NVOS64_PARAMETERS, status));
SAME(rm::status_offset(sizeof(NVOS21_PARAMETERS)), offsetof(NVOS21_PARAMETERS, status));

SAME_FIELD(rm::MemoryParameters, flags, NV_MEMORY_ALLOCATION_PARAMS, flags);
SAME_FIELD(rm::MemoryParameters, attributes, NV_MEMORY_ALLOCATION_PARAMS, attr);
SAME_FIELD(rm::MemoryParameters, size, NV_MEMORY_ALLOCATION_PARAMS, size);

SAME_FIELD(rm::HeapControl, client, NVOS32_PARAMETERS, hRoot);
SAME_FIELD(rm::HeapControl, parent, NVOS32_PARAMETERS, hObjectParent);
SAME_FIELD(rm::HeapControl, function, NVOS32_PARAMETERS, function);
SAME_FIELD(rm::HeapControl, status, NVOS32_PARAMETERS, status);
SAME_FIELD(rm::HeapControl, object, NVOS32_PARAMETERS, data.AllocSize.hMemory);
SAME_FIELD(rm::HeapControl, object, NVOS32_PARAMETERS, data.Free.hMemory);
SAME_FIELD(rm::HeapControl, flags, NVOS32_PARAMETERS, data.AllocSize.flags);
SAME_FIELD(rm::HeapControl, attributes, NVOS32_PARAMETERS, data.AllocSize.attr);
SAME_FIELD(rm::HeapControl, size, NVOS32_PARAMETERS, data.AllocSize.size);

// The sizes of pages, by NVOS32_ATTR_PAGE_SIZE.
constexpr uint32_t asks_for(uint32_t page) { return page << (0 ? NVOS32_ATTR_PAGE_SIZE);
}
SAME(rm::size_in_pages(1, asks_for(NVOS32_ATTR_PAGE_SIZE_4KB)), 4u << 10);
SAME(rm::size_in_pages(1, asks_for(NVOS32_ATTR_PAGE_SIZE_BIG)), 64u << 10);
SAME(rm::size_in_pages(1, asks_for(NVOS32_ATTR_PAGE_SIZE_HUGE)), 2u << 20);
SAME(NVOS32_ATTR_PAGE_SIZE_DEFAULT, 0);

SAME(sizeof(rm::AllocateMemory), sizeof(NVOS02_PARAMETERS));
SAME_FIELD(rm::AllocateMemory, client, NVOS02_PARAMETERS, hRoot);
SAME_FIELD(rm::AllocateMemory, parent, NVOS02_PARAMETERS, hObjectParent);
SAME_FIELD(rm::AllocateMemory, object_class, NVOS02_PARAMETERS, hClass);
SAME_FIELD(rm::AllocateMemory, limit, NVOS02_PARAMETERS, limit);
SAME_FIELD(rm::AllocateMemory, status, NVOS02_PARAMETERS, status);

SAME(sizeof(rm::Control), sizeof(NVOS54_PARAMETERS));
SAME_FIELD(rm::Control, client, NVOS54_PARAMETERS, hClient);
SAME_FIELD(rm::Control, object, NVOS54_PARAMETERS, hObject);
SAME_FIELD(rm::Control, command, NVOS54_PARAMETERS, cmd);
SAME_FIELD(rm::Control, flags, NVOS54_PARAMETERS, flags);
SAME_FIELD(rm::Control, parameters, NVOS54_PARAMETERS, params);
SAME_FIELD(rm::Control, parameters_size, NVOS54_PARAMETERS, paramsSize);
SAME_FIELD(rm::Control, status, NVOS54_PARAMETERS, status);

// NV0080_ALLOC_PARAMETERS begins with the device's number.
SAME(offsetof(NV0080_ALLOC_PARAMETERS, deviceId), 0u);
SAME(sizeof(std::declval<NV0080_ALLOC_PARAMETERS>().deviceId), sizeof(uint32_t));

SAME(rm::AttachedGpus::kCommand, NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS);
SAME(rm::AttachedGpus::kNone, NV0000_CTRL_GPU_INVALID_ID);
SAME(sizeof(rm::AttachedGpus), sizeof(NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS));
SAME(rm::GpuInfo::kCommand, NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2);
SAME(sizeof(rm::GpuInfo), sizeof(NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS));
SAME_FIELD(rm::GpuInfo, id, NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS, gpuId);
SAME_FIELD(rm::GpuInfo, device_instance, NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS, deviceInstance);
SAME(rm::GpuUuid::kCommand, NV0000_CTRL_CMD_GPU_GET_UUID_FROM_GPU_ID);
SAME(sizeof(rm::GpuUuid), sizeof(NV0000_CTRL_GPU_GET_UUID_FROM_GPU_ID_PARAMS));
SAME_FIELD(rm::GpuUuid, id, NV0000_CTRL_GPU_GET_UUID_FROM_GPU_ID_PARAMS, gpuId);
SAME_FIELD(rm::GpuUuid, format, NV0000_CTRL_GPU_GET_UUID_FROM_GPU_ID_PARAMS, flags);
SAME_FIELD(rm::GpuUuid, text, NV0000_CTRL_GPU_GET_UUID_FROM_GPU_ID_PARAMS, gpuUuid);
SAME(0, NV0000_CTRL_CMD_GPU_GET_UUID_FROM_GPU_ID_FLAGS_FORMAT_ASCII);

SAME(rm::kFbInfo, NV2080_CTRL_CMD_FB_GET_INFO);
SAME(rm::kFbInfo2, NV2080_CTRL_CMD_FB_GET_INFO_V2);
SAME_FIELD(rm::FbInfo, count, NV2080_CTRL_FB_GET_INFO_PARAMS, fbInfoListSize);
SAME_FIELD(rm::FbInfo, entries, NV2080_CTRL_FB_GET_INFO_PARAMS, fbInfoList);
SAME_FIELD(rm::FbInfo2, count, NV2080_CTRL_FB_GET_INFO_V2_PARAMS, fbInfoListSize);
SAME(sizeof(rm::FbInfo2), offsetof(NV2080_CTRL_FB_GET_INFO_V2_PARAMS, fbInfoList));
SAME(sizeof(rm::FbEntry), sizeof(NV2080_CTRL_FB_INFO));
static_assert(rm::is_size(NV2080_CTRL_FB_INFO_INDEX_RAM_SIZE) &&
              rm::is_size(NV2080_CTRL_FB_INFO_INDEX_TOTAL_RAM_SIZE) &&
              rm::is_size(NV2080_CTRL_FB_INFO_INDEX_HEAP_SIZE) &&
              rm::is_size(NV2080_CTRL_FB_INFO_INDEX_MAPPABLE_HEAP_SIZE) &&
              rm::is_size(NV2080_CTRL_FB_INFO_INDEX_USABLE_RAM_SIZE));
static_assert(rm::is_free(NV2080_CTRL_FB_INFO_INDEX_HEAP_FREE) &&
              rm::is_free(NV2080_CTRL_FB_INFO_INDEX_LARGEST_FREE_REGION_SIZE_KB));

using ExportParameters = NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS;
using ImportParameters = NV0000_CTRL_OS_UNIX_IMPORT_OBJECT_FROM_FD_PARAMS;
SAME(rm::ExportToFd::kCommand, NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD);
SAME(sizeof(rm::ExportToFd), sizeof(ExportParameters));
SAME_FIELD(rm::ExportToFd, exported.object, ExportParameters, object.data.rmObject.hObject);
SAME_FIELD(rm::ExportToFd, fd, ExportParameters, fd);
SAME(rm::ImportFromFd::kCommand, NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD);
SAME(sizeof(rm::ImportFromFd), sizeof(ImportParameters));
SAME_FIELD(rm::ImportFromFd, fd, ImportParameters, fd);
SAME_FIELD(rm::ImportFromFd, imported.device, ImportParameters, object.data.rmObject.hDevice);
SAME_FIELD(rm::ImportFromFd, imported.parent, ImportParameters, object.data.rmObject.hParent);
SAME_FIELD(rm::ImportFromFd, imported.object, ImportParameters, object.data.rmObject.hObject);

using CreateManyParameters = NV0000_CTRL_OS_UNIX_CREATE_EXPORT_OBJECT_FD_PARAMS;
using ExportManyParameters = NV0000_CTRL_OS_UNIX_EXPORT_OBJECTS_TO_FD_PARAMS;
using ImportManyParameters = NV0000_CTRL_OS_UNIX_IMPORT_OBJECTS_FROM_FD_PARAMS;
SAME(rm::CreateObjectsFd::kCommand, NV0000_CTRL_CMD_OS_UNIX_CREATE_EXPORT_OBJECT_FD);
SAME(sizeof(rm::CreateObjectsFd), sizeof(CreateManyParameters));
SAME_FIELD(rm::CreateObjectsFd, fd, CreateManyParameters, fd);
SAME(rm::ExportObjectsToFd::kCommand, NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD);
SAME(sizeof(rm::ExportObjectsToFd), sizeof(ExportManyParameters));
SAME_FIELD(rm::ExportObjectsToFd, fd, ExportManyParameters, fd);
SAME_FIELD(rm::ExportObjectsToFd, objects, ExportManyParameters, objects);
SAME_FIELD(rm::ExportObjectsToFd, count, ExportManyParameters, numObjects);
SAME_FIELD(rm::ExportObjectsToFd, index, ExportManyParameters, index);
SAME(rm::ImportObjectsFromFd::kCommand, NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD);
SAME(sizeof(rm::ImportObjectsFromFd), sizeof(ImportManyParameters));
SAME_FIELD(rm::ImportObjectsFromFd, fd, ImportManyParameters, fd);
SAME_FIELD(rm::ImportObjectsFromFd, parent, ImportManyParameters, hParent);
SAME_FIELD(rm::ImportObjectsFromFd, objects, ImportManyParameters, objects);
SAME_FIELD(rm::ImportObjectsFromFd, types, ImportManyParameters, objectTypes);
SAME_FIELD(rm::ImportObjectsFromFd, count, ImportManyParameters, numObjects);
SAME_FIELD(rm::ImportObjectsFromFd, index, ImportManyParameters, index);
