// Pools that several processes use. An exported pool is an object of the node without bytes; a
// pointer names the memory of its whole chunk, and whoever imports it holds that chunk. The
// exporter's tenant pays as long as anybody holds it, and no importer ever does.
#include <cstring>

#include "sim/cuda/capture_table.h"
#include "sim/cuda/driver.h"

using sim::Driver;
using sim::Guard;
using sim::ObjectKind;
using sim::Pool;

namespace {

struct Ticket {
  uint64_t magic;
  uint64_t pool;    // serial of the pool's object
  uint64_t serial;  // of the chunk's object
  uint64_t offset;
  uint64_t bytes;
  int32_t object;
};
static_assert(sizeof(Ticket) <= sizeof(CUmemPoolPtrExportData));
constexpr uint64_t kTicketMagic = 0x6c6f6f706d6973ULL;

bool shareable(const Pool& pool) {
  return !pool.imported && (pool.props.handleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
}

bool share(sim::Physical* memory, ObjectKind kind, const CUmemLocation& where) {
  const uint32_t location[2] = {static_cast<uint32_t>(where.type), static_cast<uint32_t>(where.id)};
  return Driver::get().account().share(memory, kind, location);
}

}  // namespace

namespace sim {

CUresult Pools::export_pointer(uint64_t address, CUmemPoolPtrExportData* out) {
  const auto part = parts_.find(address);
  if (part == parts_.end() || part->second.state != PoolPart::State::kUsed)
    return CUDA_ERROR_INVALID_VALUE;
  PoolChunk& chunk = *part->second.chunk;
  Pool& pool = *chunk.pool;
  if (!shareable(pool)) return CUDA_ERROR_INVALID_VALUE;
  pool.shared.device = pool.device;
  if (!share(&pool.shared, ObjectKind::kPool, pool.props.location) ||
      !share(&chunk.physical, ObjectKind::kMemory, pool.props.location))
    return CUDA_ERROR_OUT_OF_MEMORY;
  const Ticket ticket{kTicketMagic,          pool.shared.serial,
                      chunk.physical.serial, address - chunk.address,
                      part->second.asked,    chunk.physical.object};
  std::memset(out, 0, sizeof *out);
  std::memcpy(out, &ticket, sizeof ticket);
  return CUDA_SUCCESS;
}

CUresult Pools::import_pointer(Pool* pool, const CUmemPoolPtrExportData& data, uint64_t* out) {
  Ticket ticket;
  std::memcpy(&ticket, &data, sizeof ticket);
  if (!pool->imported || ticket.magic != kTicketMagic || ticket.pool != pool->shared.serial)
    return CUDA_ERROR_INVALID_VALUE;
  Imported import;
  Account& account = Driver::get().account();
  if (!account.import(ticket.object, ticket.serial, &import.physical))
    return CUDA_ERROR_INVALID_VALUE;
  const uint64_t address = space_.take((ticket.bytes + kPage - 1) / kPage, nullptr);
  if (address == 0) {
    account.drop(&import.physical);
    return CUDA_ERROR_MAP_FAILED;
  }
  import.pool = pool;
  import.bytes = ticket.bytes;
  imports_[address] = import;
  ++pool->parts;
  *out = address;
  return CUDA_SUCCESS;
}

}  // namespace sim

SIM_API CUresult cuMemPoolExportToShareableHandle(void* out, CUmemoryPool handle, int type,
                                                  unsigned long long flags) {
  SIM_UNSAFE_CALL(cuMemPoolExportToShareableHandle);
  if (out == nullptr || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_INVALID_VALUE;
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  Pool* pool = driver.pools.find(handle);
  if (pool == nullptr || !shareable(*pool)) return CUDA_ERROR_INVALID_VALUE;
  pool->shared.device = pool->device;
  const int fd = driver.export_memory(&pool->shared, ObjectKind::kPool, pool->props.location);
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(out) = fd;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* out, void* os_handle, int type,
                                                    unsigned long long flags) {
  SIM_UNSAFE_CALL(cuMemPoolImportFromShareableHandle);
  if (out == nullptr || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_INVALID_VALUE;
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  sim::Physical shared;
  const auto fd = static_cast<int>(reinterpret_cast<intptr_t>(os_handle));
  if (!driver.account().import(fd, ObjectKind::kPool, &shared)) return CUDA_ERROR_INVALID_VALUE;
  CUmemPoolProps props = {};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.handleTypes = type;
  props.location = driver.location_of(shared);
  if (props.location.type == CU_MEM_LOCATION_TYPE_DEVICE && props.location.id < 0) {
    driver.account().drop(&shared);
    return CUDA_ERROR_INVALID_DEVICE;
  }
  Pool* pool = driver.pools.create(props);
  pool->imported = true;
  pool->shared = shared;
  *out = pool->handle;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* out, CUdeviceptr address) {
  SIM_UNSAFE_CALL(cuMemPoolExportPointer);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Guard guard(Driver::get().lock());
  return Driver::get().pools.export_pointer(address, out);
}

SIM_API CUresult cuMemPoolImportPointer(CUdeviceptr* out, CUmemoryPool handle,
                                        CUmemPoolPtrExportData* data) {
  SIM_UNSAFE_CALL(cuMemPoolImportPointer);
  if (out == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  Pool* pool = driver.pools.find(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t address = 0;
  const CUresult result = driver.pools.import_pointer(pool, *data, &address);
  if (result == CUDA_SUCCESS) *out = address;
  return result;
}
