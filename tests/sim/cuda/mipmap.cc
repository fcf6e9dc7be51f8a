// Calls on mipmapped arrays, whose levels are arrays of their own without memory of their own; and
// what deferred arrays of either kind will need.
#include "sim/cuda/driver.h"

using sim::Array;
using sim::Driver;
using sim::Guard;
using sim::Shape;

namespace {

CUresult requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out, const Array* array, CUdevice dev) {
  if (!Driver::get().valid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!array->shape.flag(CUDA_ARRAY3D_DEFERRED_MAPPING) || array->whole != nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  *out = {};
  out->size = array->shape.bytes();
  out->alignment = sim::kTile;
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API CUresult cuMipmappedArrayCreate(CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR* form,
                                        unsigned levels) {
  SIM_CALL(cuMipmappedArrayCreate);
  if (out == nullptr || form == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_CONTEXT(context);
  Shape shape;
  if (!shape.set(*form, levels)) return CUDA_ERROR_INVALID_VALUE;
  Array* array = nullptr;
  const Guard guard(Driver::get().lock());
  const CUresult result = Driver::get().arrays.create(context, shape, true, true, &array);
  if (result == CUDA_SUCCESS) *out = reinterpret_cast<CUmipmappedArray>(array->handle);
  return result;
}

SIM_API CUresult cuMipmappedArrayGetLevel(CUarray* out, CUmipmappedArray handle, unsigned level) {
  SIM_CALL(cuMipmappedArrayGetLevel);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = sim::usable(sim::current())) return refused;
  const Guard guard(Driver::get().lock());
  Array* array = Driver::get().arrays.find(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (level >= array->shape.levels) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUarray>(Driver::get().arrays.level_of(array, level)->handle);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle) {
  SIM_CALL(cuMipmappedArrayDestroy);
  if (const CUresult refused = sim::usable(sim::current())) return refused;
  const Guard guard(Driver::get().lock());
  Array* array = Driver::get().arrays.find(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Driver::get().arrays.destroy(array);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out, CUarray handle,
                                              CUdevice dev) {
  SIM_CALL(cuArrayGetMemoryRequirements);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Guard guard(Driver::get().lock());
  return requirements(out, Driver::get().arrays.find(handle), dev);
}

SIM_API CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out,
                                                       CUmipmappedArray handle, CUdevice dev) {
  SIM_CALL(cuMipmappedArrayGetMemoryRequirements);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Guard guard(Driver::get().lock());
  return requirements(out, Driver::get().arrays.find(handle), dev);
}
