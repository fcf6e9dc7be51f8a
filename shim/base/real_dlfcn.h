// The C library's own dlopen, dlsym and dlvsym, even if other libraries interpose them.
#pragma once

namespace fracgpu {

// The C library's own `name` (dlopen, dlsym, …), never another interposer's. Null if absent.
void* find_real_dl_function(const char* name);

template <typename Pointer>
Pointer real_dl_function(const char* name) {
  return reinterpret_cast<Pointer>(find_real_dl_function(name));
}

}  // namespace fracgpu
