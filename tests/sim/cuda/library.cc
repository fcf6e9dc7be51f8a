// Libraries: code that belongs to no context. Loading one takes nothing; each context in which it
// is first used, by asking for its module, a kernel or a global, then takes what a module takes.
#include <unistd.h>

#include <memory>
#include <unordered_map>
#include <vector>

#include "sim/cuda/module.h"

using sim::Context;
using sim::Driver;
using sim::Guard;

using CUlibrary = struct CUlib_st*;
using CUkernel = struct CUkern_st*;

struct CUkern_st {
  CUlibrary library;
  CUfunction function;  // the same in every context
};
struct CUlib_st : sim::Reused<CUlib_st> {
  uint64_t bytes = 0;             // that a context takes for it
  std::vector<CUmodule> modules;  // by context
  std::map<std::string, std::unique_ptr<CUkern_st>> kernels;
};

namespace {

std::unordered_map<CUlibrary, std::unique_ptr<CUlib_st>>& libraries() {
  static auto* const all = new std::unordered_map<CUlibrary, std::unique_ptr<CUlib_st>>;
  return *all;
}

CUresult load(CUlibrary* out, const void* code, uint64_t (*cost)(const void*) = sim::module_cost) {
  if (out == nullptr || code == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Guard guard(Driver::get().lock());
  auto library = std::make_unique<CUlib_st>();
  library->bytes = cost(code);
  *out = library.get();
  libraries()[*out] = std::move(library);
  return CUDA_SUCCESS;
}

// The library's module in this context, loaded now if need be.
CUresult module_in(Context* context, CUlibrary library, CUmodule* out) {
  for (CUmodule& module : library->modules) {
    if (module->context != context->owner()) continue;
    if (!module->loaded()) {
      sim::unload_module(module);
      module = library->modules.back();
      library->modules.pop_back();
      break;
    }
    *out = module;
    return CUDA_SUCCESS;
  }
  const CUresult result = sim::load_module(context, true, library->bytes, out);
  if (result == CUDA_SUCCESS) library->modules.push_back(*out);
  return result;
}

CUresult use(CUlibrary library, CUmodule* out) {
  SIM_CONTEXT(context);
  if (libraries().count(library) == 0) return CUDA_ERROR_INVALID_HANDLE;
  return module_in(context, library, out);
}

}  // namespace

SIM_API CUresult cuLibraryLoadData(CUlibrary* out, const void* code, int*, void**, unsigned, int*,
                                   void**, unsigned) {
  SIM_CALL(cuLibraryLoadData);
  return load(out, code);
}
SIM_API CUresult cuLibraryLoadFromFile(CUlibrary* out, const char* path, int*, void**, unsigned,
                                       int*, void**, unsigned) {
  SIM_CALL(cuLibraryLoadFromFile);
  if (path != nullptr && access(path, R_OK) != 0) return CUDA_ERROR_FILE_NOT_FOUND;
  return load(out, path, sim::file_cost);
}

SIM_API CUresult cuLibraryUnload(CUlibrary library) {
  SIM_CALL(cuLibraryUnload);
  const Guard guard(Driver::get().lock());
  if (libraries().count(library) == 0) return CUDA_ERROR_INVALID_HANDLE;
  for (const CUmodule module : library->modules) sim::unload_module(module);
  libraries().erase(library);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuLibraryGetModule(CUmodule* out, CUlibrary library) {
  SIM_CALL(cuLibraryGetModule);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Guard guard(Driver::get().lock());
  return use(library, out);
}

SIM_API CUresult cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary library,
                                    const char* name) {
  SIM_CALL(cuLibraryGetGlobal);
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Guard guard(Driver::get().lock());
  CUmodule module = nullptr;
  if (const CUresult refused = use(library, &module)) return refused;
  return sim::find_global(module, name, address, bytes);
}

SIM_API CUresult cuLibraryGetKernel(CUkernel* out, CUlibrary library, const char* name) {
  SIM_CALL(cuLibraryGetKernel);
  if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Guard guard(Driver::get().lock());
  CUmodule module = nullptr;
  if (const CUresult refused = use(library, &module)) return refused;
  std::unique_ptr<CUkern_st>& kernel = library->kernels[name];
  if (kernel == nullptr)
    kernel = std::make_unique<CUkern_st>(CUkern_st{library, sim::function_named(name)});
  *out = kernel.get();
  return CUDA_SUCCESS;
}

SIM_API CUresult cuKernelGetFunction(CUfunction* out, CUkernel kernel) {
  SIM_CALL(cuKernelGetFunction);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const Guard guard(Driver::get().lock());
  CUmodule module = nullptr;
  if (const CUresult refused = use(kernel->library, &module)) return refused;
  *out = kernel->function;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuKernelGetAttribute(int* value, int attribute, CUkernel kernel, CUdevice) {
  SIM_CALL(cuKernelGetAttribute);
  if (value == nullptr || attribute != 3) return CUDA_ERROR_INVALID_VALUE;
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *value = static_cast<int>(kernel->function->local_bytes);
  return CUDA_SUCCESS;
}
