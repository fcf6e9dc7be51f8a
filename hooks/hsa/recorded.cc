// Wrappers that tell the recorder what HSA's runtime did; see hooks/recorded_call.h. They run
// inside of the hooks. What HIP asks for is told by the name of its call.
#include "hooks/hsa/recorded.h"

#include "hooks/hsa/hook.h"
#include "hooks/recorded_call.h"
#include "shim/charge/upper_call.h"
#include "shim/tracking/block_cache.h"

namespace fracgpu::hsa {
namespace {

using ring::Kind;
using ring::Type;

constexpr uint64_t kBlock = BlockCache::kBlockUnits * layout::kUnit;

// What an allocation of `bytes` takes by itself; 0: it lies in a block with others. `special`: the
// kernel hands it out in pages.
uint64_t taken_by(uint64_t bytes, bool special) {
  if (special) return page_units(bytes) * layout::kUnit;
  return bytes <= kBlock ? 0 : (bytes / kBlock + (bytes % kBlock != 0)) * kBlock;
}

void record_memory(const RecordedCall& call, Handle kind, uint64_t handle, const char* api,
                   void* address, uint64_t bytes, bool special) {
  Context context;
  if (call.process() == nullptr || !context_of(*call.process(), kind, handle, context)) return;
  record_allocation(call, Kind::linear, context.device_index, UpperCall::name_or(api),
                    reinterpret_cast<uint64_t>(address), bytes, taken_by(bytes, special),
                    context.id);
}

hsa_status_t allocate_in_pool(hsa_amd_memory_pool_t pool, size_t size, uint32_t flags,
                              void** pointer) {
  const RecordedCall call;
  const hsa_status_t result = unwrapped::hsa_amd_memory_pool_allocate(pool, size, flags, pointer);
  if (result == kSuccess) {
    record_memory(call, Handle::pool, pool.handle, "hsa_amd_memory_pool_allocate", *pointer, size,
                  flags != 0);
  }
  return result;
}

hsa_status_t free_in_pool(void* pointer) {
  return record_release(reinterpret_cast<uint64_t>(pointer),
                        UpperCall::name_or("hsa_amd_memory_pool_free"),
                        [&] { return unwrapped::hsa_amd_memory_pool_free(pointer); });
}

hsa_status_t allocate_in_region(hsa_region_t region, size_t size, void** pointer) {
  const RecordedCall call;
  const hsa_status_t result = unwrapped::hsa_memory_allocate(region, size, pointer);
  if (result == kSuccess) {
    record_memory(call, Handle::region, region.handle, "hsa_memory_allocate", *pointer, size,
                  false);
  }
  return result;
}

hsa_status_t free_in_region(void* pointer) {
  return record_release(reinterpret_cast<uint64_t>(pointer), UpperCall::name_or("hsa_memory_free"),
                        [&] { return unwrapped::hsa_memory_free(pointer); });
}

// Virtual memory management.

hsa_status_t create_handle(hsa_amd_memory_pool_t pool, size_t size, int type, uint64_t flags,
                           hsa_amd_vmem_alloc_handle_t* handle) {
  const RecordedCall call;
  const hsa_status_t result =
      unwrapped::hsa_amd_vmem_handle_create(pool, size, type, flags, handle);
  Context context;
  if (result != kSuccess || call.process() == nullptr ||
      !context_of(*call.process(), Handle::pool, pool.handle, context) ||
      context.device_index < 0) {
    return result;
  }
  call.process()->recorder.add({.type = Type::created,
                                .kind = Kind::physical,
                                .device = static_cast<uint8_t>(context.device_index),
                                .address = handle->handle,
                                .bytes = size,
                                .taken = page_units(size) * layout::kUnit},
                               UpperCall::name_or("hsa_amd_vmem_handle_create"));
  return result;
}

hsa_status_t release_handle(hsa_amd_vmem_alloc_handle_t handle) {
  return record_handle({.type = Type::dropped, .address = handle.handle},
                       UpperCall::name_or("hsa_amd_vmem_handle_release"),
                       [&] { return unwrapped::hsa_amd_vmem_handle_release(handle); });
}

hsa_status_t retain_handle(hsa_amd_vmem_alloc_handle_t* handle, void* address) {
  const RecordedCall call;
  const hsa_status_t result = unwrapped::hsa_amd_vmem_retain_alloc_handle(handle, address);
  if (result == kSuccess && call.process() != nullptr)
    call.process()->recorder.add({.type = Type::referenced, .address = handle->handle});
  return result;
}

hsa_status_t map_handle(void* address, size_t size, size_t offset,
                        hsa_amd_vmem_alloc_handle_t handle, uint64_t flags) {
  return record_handle({.type = Type::mapped,
                        .address = reinterpret_cast<uint64_t>(address),
                        .bytes = size,
                        .owner = handle.handle},
                       UpperCall::name_or("hsa_amd_vmem_map"), [&] {
                         return unwrapped::hsa_amd_vmem_map(address, size, offset, handle, flags);
                       });
}

hsa_status_t unmap_handle(void* address, size_t size) {
  return record_handle(
      {.type = Type::unmapped, .address = reinterpret_cast<uint64_t>(address), .bytes = size},
      UpperCall::name_or("hsa_amd_vmem_unmap"),
      [&] { return unwrapped::hsa_amd_vmem_unmap(address, size); });
}

template <typename Function>
void wrap(size_t number, Function* wrapper) {
  runtime_library.wrap(number, reinterpret_cast<void*>(wrapper));
}

}  // namespace

void record_calls() {
  wrap(slot::hsa_amd_memory_pool_allocate, allocate_in_pool);
  wrap(slot::hsa_amd_memory_pool_free, free_in_pool);
  wrap(slot::hsa_memory_allocate, allocate_in_region);
  wrap(slot::hsa_memory_free, free_in_region);
  wrap(slot::hsa_amd_vmem_handle_create, create_handle);
  wrap(slot::hsa_amd_vmem_handle_release, release_handle);
  wrap(slot::hsa_amd_vmem_retain_alloc_handle, retain_handle);
  wrap(slot::hsa_amd_vmem_map, map_handle);
  wrap(slot::hsa_amd_vmem_unmap, unmap_handle);
}

}  // namespace fracgpu::hsa
