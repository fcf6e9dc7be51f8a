// The calls on arrays that several tests make. Each opens its symbol anew, because the library may
// only be loaded in children.
// Results are those of the calls.
#pragma once

#include "sim/cuda/array_abi.h"
#include "sim/test/support.h"

namespace simtest {

using Form = CUDA_ARRAY3D_DESCRIPTOR;

inline int array_create(CUarray* out, const Form& form) {
  return cuda<int(CUarray*, const Form*)>("cuArray3DCreate_v2")(out, &form);
}
inline int array_destroy(CUarray array) {
  return cuda<int(CUarray)>("cuArrayDestroy")(array);
}
inline int mipmap_create(CUmipmappedArray* out, const Form& form, unsigned levels) {
  return cuda<int(CUmipmappedArray*, const Form*, unsigned)>("cuMipmappedArrayCreate")(out, &form,
                                                                                       levels);
}
inline int mipmap_destroy(CUmipmappedArray array) {
  return cuda<int(CUmipmappedArray)>("cuMipmappedArrayDestroy")(array);
}
inline int mipmap_level(CUarray* out, CUmipmappedArray array, unsigned level) {
  return cuda<int(CUarray*, CUmipmappedArray, unsigned)>("cuMipmappedArrayGetLevel")(out, array,
                                                                                     level);
}
inline int array_requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out, CUarray array) {
  return cuda<int(CUDA_ARRAY_MEMORY_REQUIREMENTS*, CUarray, int)>("cuArrayGetMemoryRequirements")(
      out, array, 0);
}

}  // namespace simtest
