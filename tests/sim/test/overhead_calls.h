// The calls that take memory without being allocations, as several tests make them. Each opens its
// symbol anew, because the library may only be loaded in children.
// Results are those of the calls.
#pragma once

#include "sim/test/support.h"

namespace simtest {

using Pointer = unsigned long long;

inline uint64_t mib(TestNode& node) {
  return node->used(0) / kMiB;
}

inline void* make_context() {
  void* context = nullptr;
  EXPECT_EQ((cuda<int(void**, unsigned, int)>("cuCtxCreate_v2")(&context, 0, 0)), 0);
  return context;
}
inline int destroy_context(void* context) {
  return cuda<int(void*)>("cuCtxDestroy_v2")(context);
}
inline int load_library(void** out) {
  return cuda<int(void**, const void*, void*, void*, unsigned, void*, void*, unsigned)>(
      "cuLibraryLoadData")(out, "any image", nullptr, nullptr, 0, nullptr, nullptr, 0);
}
inline int get_module(void** out, void* library) {
  return cuda<int(void**, void*)>("cuLibraryGetModule")(out, library);
}
inline int get_kernel(void** out, void* library) {
  return cuda<int(void**, void*, const char*)>("cuLibraryGetKernel")(out, library, "kernel");
}
inline int get_global(Pointer* out, size_t* bytes, void* library) {
  return cuda<int(Pointer*, size_t*, void*, const char*)>("cuLibraryGetGlobal")(out, bytes, library,
                                                                                "global");
}
inline int unload_library(void* library) {
  return cuda<int(void*)>("cuLibraryUnload")(library);
}
inline int set_limit(int which, size_t value) {
  return cuda<int(int, size_t)>("cuCtxSetLimit")(which, value);
}
inline size_t get_limit(int which) {
  size_t value = 0;
  EXPECT_EQ((cuda<int(size_t*, int)>("cuCtxGetLimit")(&value, which)), 0);
  return value;
}

// A green context of the whole of device 0.
inline int make_green(void** out) {
  struct {
    int type;
    unsigned char rest[140];
  } resource = {};
  void* description = nullptr;
  int rc = cuda<int(int, void*, int)>("cuDeviceGetDevResource")(0, &resource, 1);
  if (rc == 0)
    rc =
        cuda<int(void**, void*, unsigned)>("cuDevResourceGenerateDesc")(&description, &resource, 1);
  if (rc == 0)
    rc = cuda<int(void**, void*, int, unsigned)>("cuGreenCtxCreate")(out, description, 0, 1);
  return rc;
}
inline int end_green(void* green) {
  return cuda<int(void*)>("cuGreenCtxDestroy")(green);
}

}  // namespace simtest
