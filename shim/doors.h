// The doors through which programs look functions up: dlsym, dlvsym and dlopen.
//
// They are interposed by assembly that ends in a tail jump (doors.S), because glibc decides from
// the return address what RTLD_NEXT, RTLD_DEFAULT and RUNPATH mean; a C function in between would
// change the answers. This header is for the parts of the shim that need the real functions.
#pragma once

namespace fracgpu {

// The C library's own `name` (dlopen, dlsym, …), never another interposer's. Null if absent.
void* find_real_dl_function(const char* name);

template <typename Pointer>
Pointer real_dl_function(const char* name) {
  return reinterpret_cast<Pointer>(find_real_dl_function(name));
}

}  // namespace fracgpu
