// Sharing an allocation with another process by handle: the exporter pays, an importer pays
// nothing. The handle names the shared physical memory, which is the whole chunk for a small
// allocation, and the place inside it. It opens as long as anybody holds that memory, and the
// memory stays, at the exporter's tenant's cost, until the last importer has closed it.
#include <cstring>

#include "sim/cuda/driver.h"

using sim::Context;
using sim::Driver;
using sim::Found;
using sim::Guard;

namespace {

struct Ticket {
  uint64_t magic;
  uint64_t process;  // the exporter's row serial
  uint64_t serial;   // of the object
  uint64_t offset;
  uint64_t bytes;
  int32_t object;
};
static_assert(sizeof(Ticket) <= sizeof(CUipcMemHandle));
constexpr uint64_t kTicketMagic = 0x746b7473696d6970ULL;

CUresult open(CUdeviceptr* out, const CUipcMemHandle& handle, unsigned flags) {
  if (out == nullptr || flags != 1) return CUDA_ERROR_INVALID_VALUE;
  SIM_CONTEXT(context);
  Ticket ticket;
  std::memcpy(&ticket, &handle, sizeof ticket);
  if (ticket.magic != kTicketMagic) return CUDA_ERROR_INVALID_VALUE;
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  // As the real driver: not in the exporting process itself.
  if (ticket.process == driver.account().serial()) return CUDA_ERROR_INVALID_CONTEXT;
  sim::Physical memory;
  if (!driver.account().import(ticket.object, ticket.serial, &memory)) return CUDA_ERROR_MAP_FAILED;
  uint64_t address = 0;
  const CUresult result = driver.import(context, memory, ticket.offset, ticket.bytes, &address);
  if (result == CUDA_SUCCESS) {
    *out = address;
  } else {
    driver.account().drop(&memory);
  }
  return result;
}

}  // namespace

SIM_API CUresult cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr address) {
  SIM_CALL(cuIpcGetMemHandle);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = sim::usable(sim::current())) return refused;
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  Found found;
  if (!driver.find(address, &found) || found.range == nullptr || !found.range->owns() ||
      found.managed) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  sim::Physical& memory = found.range->physical;
  const uint32_t where[2] = {};
  if (!driver.account().share(&memory, sim::ObjectKind::kMemory, where))
    return CUDA_ERROR_OUT_OF_MEMORY;
  const Ticket ticket{kTicketMagic,  driver.account().serial(),
                      memory.serial, found.base - found.range->address,
                      found.bytes,   memory.object};
  std::memset(out, 0, sizeof *out);
  std::memcpy(out, &ticket, sizeof ticket);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuIpcOpenMemHandle(CUdeviceptr* out, CUipcMemHandle handle, unsigned flags) {
  SIM_CALL(cuIpcOpenMemHandle);
  return open(out, handle, flags);
}
SIM_API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* out, CUipcMemHandle handle, unsigned flags) {
  SIM_CALL(cuIpcOpenMemHandle_v2);
  return open(out, handle, flags);
}

SIM_API CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  SIM_CALL(cuIpcCloseMemHandle);
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  return driver.close_import(address);
}
