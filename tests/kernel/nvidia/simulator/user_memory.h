// Parameters are copied as a kernel does it, so that a bad pointer is an error of the call and not
// a crash.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nvtypes.h"

namespace rmsim {

bool copy_from_user(void* to, const void* user, size_t size);
bool copy_to_user(void* user, const void* from, size_t size);

// Embedded pointers are numbers in the drivers' parameters.
inline void* user_pointer(NvP64 pointer) {
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(pointer));
}

}  // namespace rmsim
