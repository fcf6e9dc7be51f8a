// Green contexts and the resources they are made from: shares of the device's multiprocessors.
// A green context retains the device's primary context and adds 2 MiB to it; what is allocated
// while one is current is the primary context's, and stays when the green one goes. It ends with
// the primary one at the latest.
#include <cstring>
#include <vector>

#include "sim/cuda/driver.h"

using sim::Context;
using sim::Driver;
using sim::Guard;

using CUgreenCtx = struct CUgreenCtx_st*;
using CUdevResourceDesc = struct CUdevResourceDesc_st*;

struct CUdevResource {
  int type;  // 1: multiprocessors
  // The simulator's own: which device the share is of.
  uint32_t magic;
  CUdevice dev;
  unsigned char padding[84];
  union {
    struct {
      unsigned smCount, minSmPartitionSize, smCoscheduledAlignment;
    } sm;
    unsigned char room[48];
  };
};
static_assert(sizeof(CUdevResource) == 144 && offsetof(CUdevResource, sm) == 96);

struct CUdevResourceDesc_st {
  CUdevResource resource;
};

namespace {

constexpr int kMultiprocessors = 1;
constexpr uint32_t kMagic = 0x736d7372;
constexpr unsigned kPart = 8;  // no share is smaller, or not a multiple

bool valid(const CUdevResource* resource) {
  return resource != nullptr && resource->type == kMultiprocessors && resource->magic == kMagic;
}

void share(CUdevResource* out, CUdevice dev, unsigned multiprocessors) {
  std::memset(out, 0, sizeof *out);
  out->type = kMultiprocessors;
  out->magic = kMagic;
  out->dev = dev;
  out->sm = {multiprocessors, kPart, kPart};
}

Context* green_of(CUgreenCtx handle) {
  auto* context = reinterpret_cast<Context*>(handle);
  if (context == nullptr || !Driver::get().known(context) || context->parent == nullptr)
    return nullptr;
  return context;
}

}  // namespace

SIM_API CUresult cuDeviceGetDevResource(CUdevice dev, CUdevResource* out, int type) {
  SIM_CALL(cuDeviceGetDevResource);
  if (out == nullptr || type != kMultiprocessors) return CUDA_ERROR_INVALID_VALUE;
  if (!Driver::get().valid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  share(out, dev, Driver::get().row(dev).multiprocessors);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDevSmResourceSplitByCount(CUdevResource* out, unsigned* groups,
                                             const CUdevResource* from, CUdevResource* rest,
                                             unsigned flags, unsigned least) {
  SIM_CALL(cuDevSmResourceSplitByCount);
  if (groups == nullptr || !valid(from) || (flags & ~3U) != 0 || least > from->sm.smCount)
    return CUDA_ERROR_INVALID_VALUE;
  const CUdevResource whole = *from;
  const unsigned size = least <= kPart ? kPart : (least + kPart - 1) / kPart * kPart;
  const unsigned possible = whole.sm.smCount / size;
  if (out == nullptr) {
    *groups = possible;
    return CUDA_SUCCESS;
  }
  if (*groups > possible) *groups = possible;
  for (unsigned i = 0; i < *groups; ++i) share(&out[i], whole.dev, size);
  if (rest != nullptr) {
    share(rest, whole.dev, whole.sm.smCount - *groups * size);
    if (rest->sm.smCount == 0) rest->type = 0;
  }
  return CUDA_SUCCESS;
}

// There is no call that ends a descriptor, so none is ever freed.
SIM_API CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* out, CUdevResource* resources,
                                           unsigned count) {
  SIM_CALL(cuDevResourceGenerateDesc);
  if (out == nullptr || count != 1 || !valid(resources)) return CUDA_ERROR_INVALID_VALUE;
  *out = new CUdevResourceDesc_st{*resources};
  return CUDA_SUCCESS;
}

SIM_API CUresult cuGreenCtxCreate(CUgreenCtx* out, CUdevResourceDesc description, CUdevice dev,
                                  unsigned flags) {
  SIM_CALL(cuGreenCtxCreate);
  if (out == nullptr || description == nullptr || flags != 1) return CUDA_ERROR_INVALID_VALUE;
  Driver& driver = Driver::get();
  if (!driver.valid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  if (description->resource.dev != dev) return CUDA_ERROR_INVALID_VALUE;
  const Guard guard(driver.lock());
  Context* green = nullptr;
  const CUresult result = driver.make_green(dev, &green);
  if (result == CUDA_SUCCESS) *out = reinterpret_cast<CUgreenCtx>(green);
  return result;
}

SIM_API CUresult cuGreenCtxDestroy(CUgreenCtx handle) {
  SIM_CALL(cuGreenCtxDestroy);
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  Context* green = green_of(handle);
  if (green == nullptr || green->references == 0) return CUDA_ERROR_INVALID_HANDLE;
  green->references = 0;
  Context* const base = green->parent;
  driver.deactivate(green);
  driver.recycle(green);
  if (base->references != 0 && --base->references == 0) driver.deactivate(base);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxFromGreenCtx(CUcontext* out, CUgreenCtx handle) {
  SIM_CALL(cuCtxFromGreenCtx);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Guard guard(Driver::get().lock());
  Context* green = green_of(handle);
  if (green == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!green->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *out = sim::handle(green);
  return CUDA_SUCCESS;
}
