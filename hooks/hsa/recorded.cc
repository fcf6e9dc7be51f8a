// Wrappers that pass the HSA runtime's calls to the recorder; see hooks/recorded_call.h. They run
// inside of the hooks. HIP's requests are recorded under the name of the HIP call.
#include "hooks/hsa/recorded.h"

#include "hooks/hsa/hook.h"
#include "hooks/recorded_call.h"
#include "shim/charge/upper_call.h"

namespace fracgpu::hsa {
namespace {

using ring::Kind;
using ring::Type;

// What an allocation of `bytes` takes by itself; 0 if it shares a block with others. With
// `special`, the kernel hands it out in pages.
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
}

}  // namespace fracgpu::hsa
