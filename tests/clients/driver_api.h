// The driver calls that the test client makes, as a table of pointers. Real programs look functions
// up in different ways (linking, dlopen, by name and version): each is a look-up here, and the
// commands above the table do not know which one filled it.
#pragma once

#include <cstddef>
#include <string>

namespace client {

using Pointer = unsigned long long;

struct DriverApi {
  int (*init)(unsigned);
  int (*device_get)(int*, int);
  int (*device_count)(int*);
  int (*device_total)(size_t*, int);
  int (*retain)(void**, int);
  int (*release)(int);
  int (*reset)(int);
  int (*context_create)(void**, unsigned, int);
  int (*context_destroy)(void*);
  int (*set_current)(void*);
  int (*get_current)(void**);
  int (*allocate)(Pointer*, size_t);
  int (*allocate_old)(unsigned*, unsigned);
  int (*allocate_pitch)(Pointer*, size_t*, size_t, size_t, unsigned);
  int (*allocate_managed)(Pointer*, size_t, unsigned);
  int (*prefetch)(Pointer, size_t, int, void*);
  int (*allocate_host)(void**, size_t);
  int (*free)(Pointer);
  int (*free_old)(unsigned);
  int (*memory_info)(size_t*, size_t*);
  int (*allocate_async)(Pointer*, size_t, void*);
  int (*load_module)(void**, const void*);
  int (*set_limit)(int, size_t);
  int (*synchronize)();
};

// One line for each member: its name, the base name, the symbol, and the version at which its ABI
// is asked for.
#define CLIENT_API(X)                                                            \
  X(init, "cuInit", "cuInit", 2000)                                              \
  X(device_get, "cuDeviceGet", "cuDeviceGet", 2000)                              \
  X(device_count, "cuDeviceGetCount", "cuDeviceGetCount", 2000)                  \
  X(device_total, "cuDeviceTotalMem", "cuDeviceTotalMem_v2", 12000)              \
  X(retain, "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", 12000)       \
  X(release, "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2", 12000) \
  X(reset, "cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2", 12000)       \
  X(context_create, "cuCtxCreate", "cuCtxCreate_v2", 3020)                       \
  X(context_destroy, "cuCtxDestroy", "cuCtxDestroy_v2", 12000)                   \
  X(set_current, "cuCtxSetCurrent", "cuCtxSetCurrent", 12000)                    \
  X(get_current, "cuCtxGetCurrent", "cuCtxGetCurrent", 12000)                    \
  X(allocate, "cuMemAlloc", "cuMemAlloc_v2", 12000)                              \
  X(allocate_old, "cuMemAlloc", "cuMemAlloc", 2000)                              \
  X(allocate_pitch, "cuMemAllocPitch", "cuMemAllocPitch_v2", 12000)              \
  X(allocate_managed, "cuMemAllocManaged", "cuMemAllocManaged", 12000)           \
  X(prefetch, "cuMemPrefetchAsync", "cuMemPrefetchAsync", 8000)                  \
  X(allocate_host, "cuMemAllocHost", "cuMemAllocHost_v2", 12000)                 \
  X(free, "cuMemFree", "cuMemFree_v2", 12000)                                    \
  X(free_old, "cuMemFree", "cuMemFree", 2000)                                    \
  X(memory_info, "cuMemGetInfo", "cuMemGetInfo_v2", 12000)                       \
  X(allocate_async, "cuMemAllocAsync", "cuMemAllocAsync", 12000)                 \
  X(load_module, "cuModuleLoadData", "cuModuleLoadData", 12000)                  \
  X(set_limit, "cuCtxSetLimit", "cuCtxSetLimit", 12000)                          \
  X(synchronize, "cuCtxSynchronize", "cuCtxSynchronize", 2000)

struct LookupOptions {
  std::string lookup;
  bool per_thread = false;
};

// False with a message when a symbol cannot be had in this way.
bool look_up(const LookupOptions& options, DriverApi* api, std::string* error);

#ifdef CLIENT_LINKED
// The same table with the addresses that the linker put in.
void linked_api(DriverApi* api);
#endif

}  // namespace client

// What the library behind the look-up "deepbind" exports.
extern "C" void client_deepbind_api(client::DriverApi* api);
