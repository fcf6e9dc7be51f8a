// Memory of pools and regions: what HIP's hipMalloc, its pools and arrays come down to.
//
// ROCr carves ordinary requests of up to 2 MiB out of blocks of 2 MiB, rounds larger ones up to
// whole blocks, and hands requests with special properties to the kernel in pages of 4 KiB (public
// source of its memory regions). A block stays as long as a part of it is allocated, and for a
// while longer; see shim/block_cache.h.
#include <stdlib.h>
#include <string.h>

#include <atomic>

#include "hooks/hsa/hook.h"
#include "shim/upper_call.h"

namespace fracgpu::hsa {
namespace {

constexpr uint64_t kBlock = BlockCache::kBlockUnits * layout::kUnit;

// False where the variable is set by which ROCr is told to carve no blocks, for finding errors.
bool carves_blocks() {
  enum { unknown, no, yes };
  static std::atomic<int> answer{unknown};
  int now = answer.load(std::memory_order_relaxed);
  if (now == unknown) {
    const char* value = getenv("HSA_DISABLE_FRAGMENT_ALLOCATOR");
    now = value != nullptr && strcmp(value, "1") == 0 ? no : yes;
    answer.store(now, std::memory_order_relaxed);
  }
  return now == yes;
}

LinearSize vram_size(uint64_t bytes, uint32_t flags) {
  if (flags != 0 || !carves_blocks()) return {page_units(bytes), false};
  const uint64_t blocks = bytes / kBlock + (bytes % kBlock != 0);
  return {blocks * BlockCache::kBlockUnits, bytes <= kBlock};
}

// Calls `allocate()`, which takes `bytes` on the device of a pool or a region.
template <typename Allocate, typename Free>
hsa_status_t allocate_in(const char* api, Handle kind, uint64_t handle, uint64_t bytes,
                         uint32_t flags, void** out, Allocate allocate, Free free) {
  Hook hook;
  // The runtime refuses these by itself, with its own error.
  if (!hook.active() || out == nullptr || bytes == 0) return allocate();
  Process& process = hook.process();
  Context context;
  int pool = 0;
  switch (place_of(process, api, kind, handle, context, &pool)) {
    case Place::elsewhere:
      return allocate();
    case Place::refused:
      return kOutOfResources;
    case Place::capped:
      break;
  }

  const LinearSize size = vram_size(bytes, flags);
  BlockCache& blocks = process.blocks[context.row][pool];
  BlockCache::Begun begun;
  if (size.shares_chunk) begun = blocks.begin(page_units(bytes) == size.units);
  const uint64_t charged = begun.from_empty ? size.units : UpperCall::take(context.row, size.units);
  Reservation reservation(process, context.row, size.units, UpperCall::name_or(api), charged);
  const auto cancel_block = [&] {
    if (!size.shares_chunk) return;
    if (begun.from_empty) reservation.take();
    blocks.cancel(begun);
  };
  if (!reservation) {
    cancel_block();
    return kOutOfResources;
  }

  void* const before = *out;
  const hsa_status_t result = allocate();
  if (result == kOutOfResources) reservation.refused_by_driver();
  if (result != kSuccess) {
    cancel_block();
    return result;
  }
  const auto address = reinterpret_cast<uint64_t>(*out);
  const bool recorded = size.shares_chunk
                            ? record_part(process, reservation, context, pool, address, begun)
                            : record_linear(process, reservation, context, address, size);
  if (recorded) return result;
  cancel_block();
  free(*out);
  *out = before;
  return kOutOfResources;
}

template <typename Real>
hsa_status_t release(void* pointer, const Real& real) {
  Hook hook;
  if (!hook.active()) return real(pointer);
  const auto address = reinterpret_cast<uint64_t>(pointer);
  Release release(hook.process(), address, address % kBlock != 0);
  const hsa_status_t result = [&] {
    const HookScope::Callback callback;  // hsa_amd_register_deallocation_callback
    return real(pointer);
  }();
  if (result == kSuccess) release.done_in_block();
  return result;
}

}  // namespace

hsa_status_t hsa_amd_memory_pool_allocate(hsa_amd_memory_pool_t pool, size_t size, uint32_t flags,
                                          void** pointer) {
  return allocate_in(
      "hsa_amd_memory_pool_allocate", Handle::pool, pool.handle, size, flags, pointer,
      [&] { return real::hsa_amd_memory_pool_allocate(pool, size, flags, pointer); },
      real::hsa_amd_memory_pool_free);
}

hsa_status_t hsa_amd_memory_pool_free(void* pointer) {
  return release(pointer, real::hsa_amd_memory_pool_free);
}

hsa_status_t hsa_memory_allocate(hsa_region_t region, size_t size, void** pointer) {
  return allocate_in(
      "hsa_memory_allocate", Handle::region, region.handle, size, 0, pointer,
      [&] { return real::hsa_memory_allocate(region, size, pointer); }, real::hsa_memory_free);
}

hsa_status_t hsa_memory_free(void* pointer) {
  return release(pointer, real::hsa_memory_free);
}

}  // namespace fracgpu::hsa
