// UVM: the ioctls of /dev/nvidia-uvm. Managed memory is memory of the host and never moves, so it
// is not counted.
#include <cerrno>
#include <cstdlib>

#include "diagnostics.h"
#include "kernel.h"
#include "page_tables.h"
#include "user_memory.h"

namespace rmsim {
namespace {

template <class Parameters, class Answer>
int answer(void* argument, Answer&& fill) {
  Parameters parameters{};
  if (!copy_from_user(&parameters, argument, sizeof parameters)) return EFAULT;
  parameters.rmStatus = NV_OK;
  fill(parameters);
  return copy_to_user(argument, &parameters, sizeof parameters) ? 0 : EFAULT;
}

// What changes nothing that can be seen here.
template <class Parameters>
int accept(void* argument) {
  return answer<Parameters>(argument, [](auto&) {});
}

// Drivers from 545 on have room for the attributes of 256 processors in these parameters, where 535
// has it for 32.
struct MapExternal550 {
  NvU64 base, length, offset;
  UvmGpuMappingAttributes perGpuAttributes[256];
  NvU64 gpuAttributesCount;
  NvS32 rmCtrlFd;
  NvU32 hClient, hMemory;
  NV_STATUS rmStatus;
};
struct AllocateSemaphorePool550 {
  NvU64 base, length;
  UvmGpuMappingAttributes perGpuAttributes[256];
  NvU64 gpuAttributesCount;
  NV_STATUS rmStatus;
};
bool is_newer_than_535() {
  return atoi(accounting.driver()) > 535;
}

template <class Parameters>
NV_STATUS map_external(Parameters& p) {
  trace("  map %llx, %llu bytes of client %x, object %x at %llu",
        static_cast<unsigned long long>(p.base), static_cast<unsigned long long>(p.length),
        p.hClient, p.hMemory, static_cast<unsigned long long>(p.offset));
  const Object* object = find_object(p.hClient, p.hMemory);
  if (object == nullptr || object->memory == nullptr || object->memory->host == nullptr)
    return NV_ERR_INVALID_OBJECT_HANDLE;
  const MemoryPtr& memory = object->memory;
  if (p.offset > memory->size || p.length > memory->size - p.offset) return NV_ERR_INVALID_OFFSET;
  page_tables::map(p.base, p.length, memory->host + p.offset, memory);
  return NV_OK;
}

}  // namespace

int uvm_ioctl(uint32_t command, void* argument) {
  trace("UVM ioctl %u", command);
  switch (command) {
    case UVM_INITIALIZE:
      return accept<UVM_INITIALIZE_PARAMS>(argument);
    case UVM_DEINITIALIZE:
      return 0;
    case UVM_MM_INITIALIZE:
      return accept<UVM_MM_INITIALIZE_PARAMS>(argument);
    case UVM_IS_8_SUPPORTED:
      return answer<UVM_IS_8_SUPPORTED_PARAMS>(argument, [](auto& p) { p.is8Supported = 1; });
    case UVM_PAGEABLE_MEM_ACCESS:
      return answer<UVM_PAGEABLE_MEM_ACCESS_PARAMS>(argument,
                                                    [](auto& p) { p.pageableMemAccess = 0; });
    case UVM_PAGEABLE_MEM_ACCESS_ON_GPU:
      return answer<UVM_PAGEABLE_MEM_ACCESS_ON_GPU_PARAMS>(
          argument, [](auto& p) { p.pageableMemAccess = 0; });
    case UVM_REGISTER_GPU:
      return answer<UVM_REGISTER_GPU_PARAMS>(argument, [](auto& p) {
        p.numaEnabled = 0;
        p.numaNodeId = -1;
      });
    case UVM_UNREGISTER_GPU:
      return accept<UVM_UNREGISTER_GPU_PARAMS>(argument);
    case UVM_REGISTER_GPU_VASPACE:
      return accept<UVM_REGISTER_GPU_VASPACE_PARAMS>(argument);
    case UVM_UNREGISTER_GPU_VASPACE:
      return accept<UVM_UNREGISTER_GPU_VASPACE_PARAMS>(argument);
    case UVM_REGISTER_CHANNEL:
      return accept<UVM_REGISTER_CHANNEL_PARAMS>(argument);
    case UVM_UNREGISTER_CHANNEL:
      return accept<UVM_UNREGISTER_CHANNEL_PARAMS>(argument);
    case UVM_CREATE_EXTERNAL_RANGE:
      return accept<UVM_CREATE_EXTERNAL_RANGE_PARAMS>(argument);
    case UVM_MAP_EXTERNAL_ALLOCATION:
      if (is_newer_than_535())
        return answer<MapExternal550>(argument, [](auto& p) { p.rmStatus = map_external(p); });
      return answer<UVM_MAP_EXTERNAL_ALLOCATION_PARAMS>(
          argument, [](auto& p) { p.rmStatus = map_external(p); });
    case UVM_MAP_EXTERNAL_SPARSE:  // ends earlier mappings (uvm_map_external.c of 535.261.03)
      return answer<UVM_MAP_EXTERNAL_SPARSE_PARAMS>(
          argument, [](auto& p) { page_tables::unmap(p.base, p.length); });
    case UVM_UNMAP_EXTERNAL:
      return answer<UVM_UNMAP_EXTERNAL_PARAMS>(
          argument, [](auto& p) { page_tables::unmap(p.base, p.length); });
    case UVM_FREE:
      return answer<UVM_FREE_PARAMS>(argument,
                                     [](auto& p) { page_tables::unmap(p.base, p.length); });
    case UVM_ALLOC_SEMAPHORE_POOL:
      if (is_newer_than_535()) return accept<AllocateSemaphorePool550>(argument);
      return accept<UVM_ALLOC_SEMAPHORE_POOL_PARAMS>(argument);
    case UVM_VALIDATE_VA_RANGE:
      return accept<UVM_VALIDATE_VA_RANGE_PARAMS>(argument);
    case UVM_MAP_DYNAMIC_PARALLELISM_REGION:
      return accept<UVM_MAP_DYNAMIC_PARALLELISM_REGION_PARAMS>(argument);
    case UVM_CREATE_RANGE_GROUP:
      return answer<UVM_CREATE_RANGE_GROUP_PARAMS>(argument, [](auto& p) {
        static uint64_t last = 0;
        p.rangeGroupId = ++last;
      });
    case UVM_DESTROY_RANGE_GROUP:
      return accept<UVM_DESTROY_RANGE_GROUP_PARAMS>(argument);
    case UVM_SET_RANGE_GROUP:
      return accept<UVM_SET_RANGE_GROUP_PARAMS>(argument);
    case UVM_SET_PREFERRED_LOCATION:
      return accept<UVM_SET_PREFERRED_LOCATION_PARAMS>(argument);
    case UVM_UNSET_PREFERRED_LOCATION:
      return accept<UVM_UNSET_PREFERRED_LOCATION_PARAMS>(argument);
    case UVM_SET_ACCESSED_BY:
      return accept<UVM_SET_ACCESSED_BY_PARAMS>(argument);
    case UVM_UNSET_ACCESSED_BY:
      return accept<UVM_UNSET_ACCESSED_BY_PARAMS>(argument);
    case UVM_ENABLE_READ_DUPLICATION:
      return accept<UVM_ENABLE_READ_DUPLICATION_PARAMS>(argument);
    case UVM_DISABLE_READ_DUPLICATION:
      return accept<UVM_DISABLE_READ_DUPLICATION_PARAMS>(argument);
    case UVM_MIGRATE:
      return answer<UVM_MIGRATE_PARAMS>(argument, [](auto& p) {
        if (p.semaphoreAddress == 0) return;
        auto* word = reinterpret_cast<volatile uint32_t*>(gpu_bytes(p.semaphoreAddress, 4));
        if (word != nullptr) *word = p.semaphorePayload;
      });
    case UVM_MIGRATE_RANGE_GROUP:
      return accept<UVM_MIGRATE_RANGE_GROUP_PARAMS>(argument);
    case UVM_CLEAN_UP_ZOMBIE_RESOURCES:
      return accept<UVM_CLEAN_UP_ZOMBIE_RESOURCES_PARAMS>(argument);
    default:
      report_unknown("UVM ioctl", command, "its number says no size");
      return EINVAL;
  }
}

}  // namespace rmsim
