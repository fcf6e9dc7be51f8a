// The table of driver calls filled by ordinary linking: every call goes through the caller's own
// PLT or GOT. It is compiled into the linked client and into the library that is opened with
// RTLD_DEEPBIND. Each member is a small function, so that the call itself, and not only an address
// taken once, is bound as a program's would be.
#include "driver_api.h"

using client::DriverApi;
using client::Pointer;

extern "C" {
int cuInit(unsigned);
int cuDeviceGet(int*, int);
int cuDeviceGetCount(int*);
int cuDeviceTotalMem_v2(size_t*, int);
int cuDevicePrimaryCtxRetain(void**, int);
int cuDevicePrimaryCtxRelease_v2(int);
int cuDevicePrimaryCtxReset_v2(int);
int cuCtxCreate_v2(void**, unsigned, int);
int cuCtxDestroy_v2(void*);
int cuCtxSetCurrent(void*);
int cuCtxGetCurrent(void**);
int cuMemAlloc_v2(Pointer*, size_t);
int cuMemAlloc(unsigned*, unsigned);
int cuMemAllocPitch_v2(Pointer*, size_t*, size_t, size_t, unsigned);
int cuMemAllocManaged(Pointer*, size_t, unsigned);
int cuMemPrefetchAsync(Pointer, size_t, int, void*);
int cuMemAllocHost_v2(void**, size_t);
int cuMemFree_v2(Pointer);
int cuMemFree(unsigned);
int cuMemGetInfo_v2(size_t*, size_t*);
int cuMemAllocAsync(Pointer*, size_t, void*);
int cuModuleLoadData(void**, const void*);
int cuCtxSetLimit(int, size_t);
int cuCtxSynchronize();
}

#ifdef CLIENT_DEEPBIND
extern "C" __attribute__((visibility("default"))) void client_deepbind_api(DriverApi* api) {
#else
namespace client {
void linked_api(DriverApi* api);
}
void client::linked_api(DriverApi* api) {
#endif
  api->init = [](unsigned flags) { return cuInit(flags); };
  api->device_get = [](int* device, int ordinal) { return cuDeviceGet(device, ordinal); };
  api->device_count = [](int* count) { return cuDeviceGetCount(count); };
  api->device_total = [](size_t* bytes, int device) { return cuDeviceTotalMem_v2(bytes, device); };
  api->retain = [](void** context, int device) {
    return cuDevicePrimaryCtxRetain(context, device);
  };
  api->release = [](int device) { return cuDevicePrimaryCtxRelease_v2(device); };
  api->reset = [](int device) { return cuDevicePrimaryCtxReset_v2(device); };
  api->context_create = [](void** c, unsigned flags, int device) {
    return cuCtxCreate_v2(c, flags, device);
  };
  api->context_destroy = [](void* context) { return cuCtxDestroy_v2(context); };
  api->set_current = [](void* context) { return cuCtxSetCurrent(context); };
  api->get_current = [](void** context) { return cuCtxGetCurrent(context); };
  api->allocate = [](Pointer* out, size_t bytes) { return cuMemAlloc_v2(out, bytes); };
  api->allocate_old = [](unsigned* out, unsigned bytes) { return cuMemAlloc(out, bytes); };
  api->allocate_pitch = [](Pointer* out, size_t* pitch, size_t width, size_t height,
                           unsigned element) {
    return cuMemAllocPitch_v2(out, pitch, width, height, element);
  };
  api->allocate_managed = [](Pointer* out, size_t bytes, unsigned flags) {
    return cuMemAllocManaged(out, bytes, flags);
  };
  api->prefetch = [](Pointer address, size_t bytes, int device, void* stream) {
    return cuMemPrefetchAsync(address, bytes, device, stream);
  };
  api->allocate_host = [](void** out, size_t bytes) { return cuMemAllocHost_v2(out, bytes); };
  api->free = [](Pointer address) { return cuMemFree_v2(address); };
  api->free_old = [](unsigned address) { return cuMemFree(address); };
  api->allocate_async = [](Pointer* out, size_t bytes, void* stream) {
    return cuMemAllocAsync(out, bytes, stream);
  };
  api->load_module = [](void** module, const void* image) {
    return cuModuleLoadData(module, image);
  };
  api->set_limit = [](int limit, size_t value) { return cuCtxSetLimit(limit, value); };
  api->synchronize = [] { return cuCtxSynchronize(); };
  api->memory_info = [](size_t* free, size_t* total) { return cuMemGetInfo_v2(free, total); };
}
