// Modules and libraries: their calls make the driver take memory without naming its size.
// Driver-reported usage shows what they took.
//
// If libcuda's requests to RM are not watched, an image reveals much of what it will take, so room
// is reserved before it is loaded. A library's code is loaded at its first use, mostly by a launch,
// which is not hooked. The next reading of the usage finds it.
#include <algorithm>
#include <atomic>

#include "hooks/cuda/image.h"
#include "hooks/cuda/image_size.h"
#include "hooks/cuda/overhead_call.h"
#include "shim/charge/linear.h"

namespace fracgpu::cuda {
namespace {

// Code is in the driver's pages, which it may share with other code.
uint64_t code_units(uint64_t bytes) {
  return bytes != 0 ? linear_size(bytes).units : 0;
}

// `key()` identifies the image, and `bytes(loading)` returns its size.
template <typename Key, typename Bytes, typename Load>
CUresult load_module(CUmodule* module, const char* api, Key key, Bytes bytes, Load load) {
  Hook hook;
  Context context;
  if (!hook.active() || module == nullptr || !current_context(hook.process(), context))
    return load();
  Process& process = hook.process();
  if (kernel_calls_are_watched(context.device_index))
    return take_as_needed(process, context.device_index, api, load);
  const CUmodule before = *module;
  return take_overhead(
      process, context.device_index, api,
      [&] {
        ModuleImage image{.units = code_units(bytes(loading(process)))};
        if (context.id != kUntrackedContext) {
          image.key = key();
          image.context = context.id;
        }
        return OverheadReservation::for_module(process, context.device_index, api, kEstimatedModule,
                                               image);
      },
      load,
      [&] {
        real::cuModuleUnload(*module);
        *module = before;
      },
      [&] { return static_cast<const void*>(*module); });
}

// Calls `load()`, which loads nothing yet, and remembers the size that the image will take.
template <typename Load, typename Bytes>
CUresult announce_library(CUlibrary* library, Load load, Bytes bytes) {
  Hook hook;
  const CUresult result = load();
  if (result == kSuccess && hook.active() && library != nullptr) {
    Process& process = hook.process();
    process.code_sizes.enter(reinterpret_cast<uint64_t>(*library),
                             code_units(bytes(loading(process))));
  }
  return result;
}

// A library's code can be unloaded only with the whole library. So there is no undo, and refusing
// code that is already loaded would not help. After the first use in a context there is nothing
// more to load.
template <typename Load>
CUresult use_library(CUlibrary library, const char* api, Load load) {
  Hook hook;
  Context context;
  if (!hook.active() || !current_context(hook.process(), context)) return load();
  Process& process = hook.process();
  const bool tracked = context.id != kUntrackedContext;
  if (tracked && process.libraries.is_loaded(library, context.id)) return load();
  const uint64_t units = process.code_sizes.find(reinterpret_cast<uint64_t>(library));
  const CUresult result = take_code(process, context.device_index, api, units, load, CannotUndo{});
  if (result == kSuccess && tracked && context.device_index >= 0)
    process.libraries.enter(library, context.id);
  return result;
}

}  // namespace

// The driver is asked only once, because the environment decides.
Loading loading(const Process& process) {
  static std::atomic<int> known{0};
  int mode = known.load(std::memory_order_relaxed);
  if (mode == 0) {
    const OwnCalls own_calls(process);
    if (real::cuModuleGetLoadingMode(&mode) != kSuccess) return Loading::eager;
    known.store(mode, std::memory_order_relaxed);
  }
  return mode == kLazyLoading ? Loading::lazy : Loading::eager;
}

CUresult cuModuleLoad(CUmodule* module, const char* file) {
  return load_module(
      module, "cuModuleLoad", [&] { return file_key(file); },
      [&](Loading how) { return file_bytes(file, how); },
      [&] { return real::cuModuleLoad(module, file); });
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return load_module(
      module, "cuModuleLoadData", [&] { return image_key(image); },
      [&](Loading how) { return image_bytes(image, how); },
      [&] { return real::cuModuleLoadData(module, image); });
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int option_count,
                            int* options, void** values) {
  return load_module(
      module, "cuModuleLoadDataEx",
      [&] { return key_with_options(image_key(image), option_count, options, values); },
      [&](Loading how) { return image_bytes(image, how); },
      [&] { return real::cuModuleLoadDataEx(module, image, option_count, options, values); });
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image) {
  return load_module(
      module, "cuModuleLoadFatBinary", [&] { return image_key(image); },
      [&](Loading how) { return image_bytes(image, how); },
      [&] { return real::cuModuleLoadFatBinary(module, image); });
}

CUresult cuModuleUnload(CUmodule module) {
  Hook hook;
  if (!hook.active() || kernel_calls_are_watched(hook.process()))
    return real::cuModuleUnload(module);
  ModuleRelease release(hook.process(), module);
  const CUresult result = real::cuModuleUnload(module);
  if (result != kSuccess) return result;
  Context context;
  release.done(current_context(hook.process(), context) ? context.device_index : -1);
  return result;
}

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, int* jit_options,
                           void** jit_values, unsigned int jit_count, int* library_options,
                           void** library_values, unsigned int library_count) {
  return announce_library(
      library,
      [&] {
        return real::cuLibraryLoadData(library, code, jit_options, jit_values, jit_count,
                                       library_options, library_values, library_count);
      },
      [&](Loading how) { return image_bytes(code, how); });
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* file, int* jit_options,
                               void** jit_values, unsigned int jit_count, int* library_options,
                               void** library_values, unsigned int library_count) {
  return announce_library(
      library,
      [&] {
        return real::cuLibraryLoadFromFile(library, file, jit_options, jit_values, jit_count,
                                           library_options, library_values, library_count);
      },
      [&](Loading how) { return file_bytes(file, how); });
}

CUresult cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  return use_library(library, "cuLibraryGetModule",
                     [&] { return real::cuLibraryGetModule(module, library); });
}

CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  return use_library(library, "cuLibraryGetGlobal",
                     [&] { return real::cuLibraryGetGlobal(dptr, bytes, library, name); });
}

CUresult cuLibraryUnload(CUlibrary library) {
  Hook hook;
  // This must precede the call: the driver may give the handle to another library at once.
  if (hook.active()) {
    hook.process().libraries.forget(library);
    hook.process().code_sizes.forget(reinterpret_cast<uint64_t>(library));
  }
  const CUresult result = real::cuLibraryUnload(library);
  Context context;
  if (result == kSuccess && hook.active() && current_context(hook.process(), context) &&
      context.device_index >= 0 && !kernel_calls_are_watched(context.device_index)) {
    settle_unloaded_library(hook.process(), context.device_index);
  }
  return result;
}

}  // namespace fracgpu::cuda
