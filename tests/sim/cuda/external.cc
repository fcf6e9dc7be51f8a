// Memory that a graphics driver or another process has made, imported by descriptor: its owner
// pays, so nothing is counted here. A descriptor of the node's own memory holds it for as long as
// the import lasts. Buffers and mipmapped arrays in it are freed like others, at no gain.
#include <fcntl.h>
#include <unistd.h>

#include <memory>
#include <unordered_map>

#include "sim/cuda/driver.h"

using sim::Array;
using sim::Driver;
using sim::Guard;
using sim::Shape;

using CUexternalMemory = struct CUextMemory_st*;

struct CUextMemory_st : sim::Reused<CUextMemory_st> {
  uint64_t bytes = 0;
  sim::Physical held;
};

namespace {

enum : int { kOpaqueDescriptor = 1 };

std::unordered_map<CUexternalMemory, std::unique_ptr<CUextMemory_st>>& imports() {
  static auto* const all =
      new std::unordered_map<CUexternalMemory, std::unique_ptr<CUextMemory_st>>;
  return *all;
}

bool inside(const CUextMemory_st& memory, uint64_t offset, uint64_t bytes) {
  return offset <= memory.bytes && bytes <= memory.bytes - offset;
}

}  // namespace

SIM_API CUresult cuImportExternalMemory(CUexternalMemory* out,
                                        const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* description) {
  SIM_CALL(cuImportExternalMemory);
  if (out == nullptr || description == nullptr || description->size == 0 || description->flags > 1)
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = sim::usable(sim::current())) return refused;
  if (description->type != kOpaqueDescriptor) return CUDA_ERROR_NOT_SUPPORTED;
  const int fd = description->handle.fd;
  if (fcntl(fd, F_GETFD) == -1) return CUDA_ERROR_INVALID_HANDLE;
  const Guard guard(Driver::get().lock());
  auto memory = std::make_unique<CUextMemory_st>();
  memory->bytes = description->size;
  if (Driver::get().account().import(fd, sim::ObjectKind::kMemory, &memory->held) &&
      memory->bytes > memory->held.bytes) {
    Driver::get().account().drop(&memory->held);
    return CUDA_ERROR_INVALID_VALUE;
  }
  ::close(fd);  // on success it is the driver's
  *out = memory.get();
  imports()[*out] = std::move(memory);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDestroyExternalMemory(CUexternalMemory handle) {
  SIM_CALL(cuDestroyExternalMemory);
  const Guard guard(Driver::get().lock());
  const auto found = imports().find(handle);
  if (found == imports().end()) return CUDA_ERROR_INVALID_HANDLE;
  Driver::get().account().drop(&found->second->held);
  imports().erase(found);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr* out, CUexternalMemory handle,
                                                 const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* buffer) {
  SIM_CALL(cuExternalMemoryGetMappedBuffer);
  if (out == nullptr || buffer == nullptr || buffer->size == 0 || buffer->flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_CONTEXT(context);
  const Guard guard(Driver::get().lock());
  const auto found = imports().find(handle);
  if (found == imports().end()) return CUDA_ERROR_INVALID_HANDLE;
  if (!inside(*found->second, buffer->offset, buffer->size)) return CUDA_ERROR_INVALID_VALUE;
  uint64_t address = 0;
  const CUresult result =
      Driver::get().attach(context, sim::Range::Type::kExternal, buffer->size, &address);
  if (result == CUDA_SUCCESS) *out = address;
  return result;
}

SIM_API CUresult
cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray* out, CUexternalMemory handle,
                                        const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC* part) {
  SIM_CALL(cuExternalMemoryGetMappedMipmappedArray);
  if (out == nullptr || part == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_CONTEXT(context);
  const Guard guard(Driver::get().lock());
  const auto found = imports().find(handle);
  if (found == imports().end()) return CUDA_ERROR_INVALID_HANDLE;
  Shape shape;
  if (!shape.set(part->arrayDesc, part->numLevels) ||
      !inside(*found->second, part->offset, shape.bytes()))
    return CUDA_ERROR_INVALID_VALUE;
  Array* array = nullptr;
  const CUresult result = Driver::get().arrays.create(context, shape, true, false, &array);
  if (result == CUDA_SUCCESS) *out = reinterpret_cast<CUmipmappedArray>(array->handle);
  return result;
}
