// Addresses for the memory of the simulated HSA runtime, from the host's own address space.
#include "sim/hsa/chunk.h"

#include <sys/mman.h>

#include "sim/hsa/kernel.h"

namespace sim {

uint64_t map_addresses(uint64_t bytes, uint64_t alignment, bool usable, uint64_t wanted) {
  const int protection = usable ? PROT_READ | PROT_WRITE : PROT_NONE;
  const uint64_t room = alignment > 4096 ? alignment : 0;
  if (bytes + room < bytes) return 0;
  void* const at = mmap(reinterpret_cast<void*>(wanted), bytes + room, protection,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return 0;
  const auto start = reinterpret_cast<uint64_t>(at);
  const uint64_t base = room != 0 ? round_up(start, alignment) : start;
  if (base != start) munmap(at, base - start);
  const uint64_t behind = start + bytes + room - (base + bytes);
  if (behind != 0) munmap(reinterpret_cast<void*>(base + bytes), behind);
  return base;
}

void unmap_addresses(uint64_t base, uint64_t bytes) {
  munmap(reinterpret_cast<void*>(base), bytes);
}

bool take_chunk(Account& account, int device, uint64_t bytes, Chunk* out) {
  Chunk chunk;
  if (!may_take(device) || !account.take(device, bytes, &chunk.physical)) return false;
  chunk.bytes = bytes;
  chunk.base = map_addresses(bytes, bytes >= kHugePage ? kHugePage : 4096, true);
  if (chunk.base == 0) {
    account.drop(&chunk.physical);
    return false;
  }
  if (device >= 0) madvise(reinterpret_cast<void*>(chunk.base), bytes, MADV_DONTFORK);
  *out = chunk;
  return true;
}

void drop_chunk(Account& account, Chunk* chunk) {
  if (chunk->base != 0) unmap_addresses(chunk->base, chunk->bytes);
  if (chunk->physical.device < 0) account.host_memory_freed(chunk->bytes);
  const int device = chunk->physical.device;
  account.drop(&chunk->physical);
  has_returned(device);
  chunk->base = 0;
}

}  // namespace sim
