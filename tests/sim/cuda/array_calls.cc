// Calls on arrays of one level: create, destroy, describe.
// The oldest calls take 32-bit descriptors. What an array takes is in format.cc; a deferred
// one answers the same number before it has any memory.
#include "sim/cuda/driver.h"

using sim::Array;
using sim::Driver;
using sim::Guard;
using sim::Shape;

namespace {

CUresult create(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR& form) {
  SIM_CONTEXT(context);
  Shape shape;
  if (!shape.set(form, 1)) return CUDA_ERROR_INVALID_VALUE;
  Array* array = nullptr;
  const Guard guard(Driver::get().lock());
  const CUresult result = Driver::get().arrays.create(context, shape, false, true, &array);
  if (result == CUDA_SUCCESS) *out = reinterpret_cast<CUarray>(array->handle);
  return result;
}

// Old and new descriptors, flat and deep, differ in their fields' widths and presence only.
template <typename Flat>
CUresult create_flat(CUarray* out, const Flat* form) {
  if (out == nullptr || form == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create(out, {form->Width, form->Height, 0, form->Format, form->NumChannels, 0});
}

template <typename Deep>
CUresult create_deep(CUarray* out, const Deep* form) {
  if (out == nullptr || form == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create(
      out, {form->Width, form->Height, form->Depth, form->Format, form->NumChannels, form->Flags});
}

CUresult form_of(CUarray handle, CUDA_ARRAY3D_DESCRIPTOR* form) {
  if (const CUresult refused = sim::usable(sim::current())) return refused;
  const Guard guard(Driver::get().lock());
  const Array* array = Driver::get().arrays.find(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *form = array->shape.form;
  return CUDA_SUCCESS;
}

template <typename Flat>
CUresult describe_flat(Flat* out, CUarray handle) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY3D_DESCRIPTOR form;
  if (const CUresult refused = form_of(handle, &form)) return refused;
  out->Width = static_cast<decltype(out->Width)>(form.Width);
  out->Height = static_cast<decltype(out->Height)>(form.Height);
  out->Format = form.Format;
  out->NumChannels = form.NumChannels;
  return CUDA_SUCCESS;
}

template <typename Deep>
CUresult describe_deep(Deep* out, CUarray handle) {
  const CUresult result = describe_flat(out, handle);
  if (result != CUDA_SUCCESS) return result;
  CUDA_ARRAY3D_DESCRIPTOR form;
  if (const CUresult refused = form_of(handle, &form)) return refused;
  out->Depth = static_cast<decltype(out->Depth)>(form.Depth);
  out->Flags = form.Flags;
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API CUresult cuArrayCreate(CUarray* out, const CUDA_ARRAY_DESCRIPTOR_v1* form) {
  SIM_CALL(cuArrayCreate);
  return create_flat(out, form);
}
SIM_API CUresult cuArrayCreate_v2(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* form) {
  SIM_CALL(cuArrayCreate_v2);
  return create_flat(out, form);
}
SIM_API CUresult cuArray3DCreate(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR_v1* form) {
  SIM_CALL(cuArray3DCreate);
  return create_deep(out, form);
}
SIM_API CUresult cuArray3DCreate_v2(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* form) {
  SIM_CALL(cuArray3DCreate_v2);
  return create_deep(out, form);
}

SIM_API CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1* out, CUarray handle) {
  SIM_CALL(cuArrayGetDescriptor);
  return describe_flat(out, handle);
}
SIM_API CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* out, CUarray handle) {
  SIM_CALL(cuArrayGetDescriptor_v2);
  return describe_flat(out, handle);
}
SIM_API CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1* out, CUarray handle) {
  SIM_CALL(cuArray3DGetDescriptor);
  return describe_deep(out, handle);
}
SIM_API CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* out, CUarray handle) {
  SIM_CALL(cuArray3DGetDescriptor_v2);
  return describe_deep(out, handle);
}

SIM_API CUresult cuArrayDestroy(CUarray handle) {
  SIM_CALL(cuArrayDestroy);
  if (const CUresult refused = sim::usable(sim::current())) return refused;
  const Guard guard(Driver::get().lock());
  Array* array = Driver::get().arrays.find(handle);
  // A level goes with the mipmapped array that it is part of.
  if (array == nullptr || array->whole != nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Driver::get().arrays.destroy(array);
  return CUDA_SUCCESS;
}
