// Modules and functions: any image loads, any name is found, nothing is ever run.
// A module takes no device memory unless FRACGPU_SIM_MODULE_MIB is set; then each load takes that
// much from the node, as part of what the context holds, so that implicit growth can be tested.
// Unloading gives it back.
#include <cstdlib>
#include <new>

#include "cuda_driver.h"

using sim::Context;
using sim::Driver;
using sim::Guard;

struct CUmod_st {
  Context* context;
  uint64_t context_id;
  uint64_t bytes;
};

namespace {

uint64_t module_cost() {
  static const uint64_t bytes = [] {
    const char* text = std::getenv("FRACGPU_SIM_MODULE_MIB");
    const uint64_t mib = text != nullptr ? std::strtoull(text, nullptr, 10) : 0;
    return ((mib << 20) + sim::kPage - 1) / sim::kPage * sim::kPage;
  }();
  return bytes;
}

CUresult load(CUmodule* out, const void* image) {
  if (out == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_CONTEXT(context);
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  const uint64_t bytes = module_cost();
  if (bytes != 0 && !driver.account().reserve(context->device, bytes, sim::Kind::kModule)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  context->module_bytes += bytes;
  *out = new CUmod_st{context, context->id, bytes};
  return CUDA_SUCCESS;
}

char any_function;

}  // namespace

SIM_API CUresult cuModuleLoadData(CUmodule* out, const void* image) {
  SIM_CALL(cuModuleLoadData);
  return load(out, image);
}
SIM_API CUresult cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned, int*, void**) {
  SIM_CALL(cuModuleLoadDataEx);
  return load(out, image);
}
SIM_API CUresult cuModuleLoadFatBinary(CUmodule* out, const void* image) {
  SIM_CALL(cuModuleLoadFatBinary);
  return load(out, image);
}
SIM_API CUresult cuModuleUnload(CUmodule module) {
  SIM_CALL(cuModuleUnload);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  // A context that ended in between has taken its modules with it.
  Context* context = module->context;
  if (module->bytes != 0 && context->alive && context->id == module->context_id) {
    driver.account().release(context->device, module->bytes, sim::Kind::kModule);
    context->module_bytes -= module->bytes;
  }
  delete module;
  return CUDA_SUCCESS;
}
SIM_API CUresult cuModuleGetFunction(CUfunction* out, CUmodule module, const char* name) {
  SIM_CALL(cuModuleGetFunction);
  if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *out = reinterpret_cast<CUfunction>(&any_function);
  return CUDA_SUCCESS;
}
