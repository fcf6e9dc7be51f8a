// Modules and functions: any image loads, any name is found, nothing is ever run.
// A module takes what its image says, in whole pages, and FRACGPU_SIM_MODULE_MIB more where that is
// set, from the node and as part of what the context holds. An image that begins with digits, "12
// MiB", takes just that. Code that is loaded lazily takes nothing. Unloading gives it back, or,
// with FRACGPU_SIM_MODULES_KEPT, leaves it to the context for its next modules, as a heap does that
// lets go of no chunk. Globals are addresses inside what the module has taken already.
#include "sim/cuda/module.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "sim/cuda/capture_table.h"
#include "sim/cuda/image.h"
#include "sim/cuda/version.h"

using sim::Context;
using sim::Driver;
using sim::Guard;

namespace sim {
namespace {

constexpr uint64_t kGlobalBytes = 4096;

auto& functions = *new std::map<std::string, CUfunc_st>;  // with the driver's lock held

uint64_t pages(uint64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}
// As CUDA_MODULE_LOADING says, or else since 12.2.
bool loads_lazily() {
  static const bool lazily = [] {
    const char* const text = std::getenv("CUDA_MODULE_LOADING");
    return text != nullptr ? std::strcmp(text, "LAZY") == 0 : driver_version() >= 12020;
  }();
  return lazily;
}

uint64_t pages_of_mib(const char* text) {
  return pages(std::strtoull(text, nullptr, 10) << 20);
}

}  // namespace

uint64_t module_cost(const void* image) {
  static const uint64_t of_any = [] {
    const char* const text = std::getenv("FRACGPU_SIM_MODULE_MIB");
    return text != nullptr ? pages_of_mib(text) : 0;
  }();
  const char* const text = static_cast<const char*>(image);
  return *text >= '0' && *text <= '9' ? pages_of_mib(text)
                                      : of_any + pages(bytes_on_device(text, loads_lazily()));
}

uint64_t file_cost(const void* path) {
  const char* const name = static_cast<const char*>(path);
  std::ifstream file(name);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  return module_cost(is_image(content.data(), content.size()) ? content.c_str() : name);
}

namespace {

bool modules_are_kept() {
  static const bool kept = std::getenv("FRACGPU_SIM_MODULES_KEPT") != nullptr;
  return kept;
}

}  // namespace

CUresult load_module(Context* context, bool of_library, uint64_t bytes, CUmodule* out) {
  context = context->owner();
  const uint64_t of_kept = std::min(context->kept_bytes, bytes);
  if (!Driver::get().grow(context, bytes - of_kept)) return CUDA_ERROR_OUT_OF_MEMORY;
  context->kept_bytes -= of_kept;
  auto* const module = new CUmod_st;
  module->context = context;
  module->context_id = context->id;
  module->bytes = bytes;
  module->of_library = of_library;
  *out = module;
  return CUDA_SUCCESS;
}

void unload_module(CUmodule module) {
  if (module->loaded()) {
    for (const auto& [name, address] : module->globals) Driver::get().detach(address);
    if (modules_are_kept()) {
      module->context->kept_bytes += module->bytes;
    } else {
      Driver::get().shrink(module->context, module->bytes);
    }
  }
  delete module;
}

CUresult find_global(CUmodule module, const char* name, CUdeviceptr* address, size_t* bytes) {
  if (!module->loaded()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  uint64_t& at = module->globals[name];
  if (at == 0) {
    const CUresult result =
        Driver::get().attach(module->context, Range::Type::kGlobal, kGlobalBytes, &at);
    if (result != CUDA_SUCCESS) {
      module->globals.erase(name);
      return result;
    }
  }
  if (address != nullptr) *address = at;
  if (bytes != nullptr) *bytes = kGlobalBytes;
  return CUDA_SUCCESS;
}

std::atomic<bool> any_has_local_memory{false};

CUfunction function_named(const std::string& name) {
  const auto [entry, is_new] = functions.try_emplace(name);
  if (is_new && name.rfind("local ", 0) == 0) {
    entry->second.local_bytes = std::strtoull(name.c_str() + 6, nullptr, 10);
    any_has_local_memory = true;
  }
  return &entry->second;
}

size_t local_bytes_of(CUfunction function) {
  for (const auto& [name, known] : functions) {
    if (&known == function) return known.local_bytes;
  }
  return 0;
}

}  // namespace sim

namespace {

CUresult load(CUmodule* out, const void* image, uint64_t (*cost)(const void*) = sim::module_cost) {
  if (out == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_CONTEXT(context);
  const Guard guard(Driver::get().lock());
  return sim::load_module(context, false, cost(image), out);
}

}  // namespace

SIM_API CUresult cuModuleLoad(CUmodule* out, const char* path) {
  SIM_UNSAFE_CALL(cuModuleLoad);
  if (path != nullptr && access(path, R_OK) != 0) return CUDA_ERROR_FILE_NOT_FOUND;
  return load(out, path, sim::file_cost);
}
SIM_API CUresult cuModuleLoadData(CUmodule* out, const void* image) {
  SIM_UNSAFE_CALL(cuModuleLoadData);
  return load(out, image);
}
SIM_API CUresult cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned, int*, void**) {
  SIM_UNSAFE_CALL(cuModuleLoadDataEx);
  return load(out, image);
}
SIM_API CUresult cuModuleLoadFatBinary(CUmodule* out, const void* image) {
  SIM_UNSAFE_CALL(cuModuleLoadFatBinary);
  return load(out, image);
}
SIM_API CUresult cuModuleUnload(CUmodule module) {
  SIM_CALL(cuModuleUnload);
  // What a library has loaded goes with the library.
  if (module == nullptr || module->of_library) return CUDA_ERROR_INVALID_HANDLE;
  const Guard guard(Driver::get().lock());
  sim::unload_module(module);
  return CUDA_SUCCESS;
}
SIM_API CUresult cuModuleGetLoadingMode(int* mode) {
  SIM_CALL(cuModuleGetLoadingMode);
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = sim::loads_lazily() ? 2 : 1;
  return CUDA_SUCCESS;
}
SIM_API CUresult cuModuleGetFunction(CUfunction* out, CUmodule module, const char* name) {
  SIM_CALL(cuModuleGetFunction);
  if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const Guard guard(Driver::get().lock());
  *out = sim::function_named(name);
  return CUDA_SUCCESS;
}
SIM_API CUresult cuFuncGetAttribute(int* value, int attribute, CUfunction function) {
  SIM_CALL(cuFuncGetAttribute);
  if (value == nullptr || attribute != 3) return CUDA_ERROR_INVALID_VALUE;
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *value = static_cast<int>(function->local_bytes);
  return CUDA_SUCCESS;
}
SIM_API CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule module,
                                      const char* name) {
  SIM_CALL(cuModuleGetGlobal_v2);
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const Guard guard(Driver::get().lock());
  return sim::find_global(module, name, address, bytes);
}
