// Code, contexts, and what is set of them.
#include "measurement.h"

namespace client {
namespace {

CUmodule module;
CUlibrary library;
CUcontext context;
CUdeviceptr pointer;
size_t bytes;

void load_library() {
  void* const none = nullptr;
  call("cuLibraryLoadData", &library, static_cast<const void*>("any"), none, none, 0u, none, none,
       0u);
}
void load_library_file() {
  void* const none = nullptr;
  call("cuLibraryLoadFromFile", &library, static_cast<const char*>("/proc/self/exe"), none, none,
       0u, none, none, 0u);
}

void measure_modules(AllCounts& all) {
  const auto loads = [&](const char* name, Measurement::Step load) {
    Measurement()
        .step(name, std::move(load))
        .step("cuModuleUnload", [] { call("cuModuleUnload", module); })
        .run(all);
  };
  const auto image = static_cast<const void*>("4 MiB");
  loads("cuModuleLoadData", [=] { call("cuModuleLoadData", &module, image); });
  loads("cuModuleLoadDataEx", [=] {
    call("cuModuleLoadDataEx", &module, image, 0u, static_cast<int*>(nullptr),
         static_cast<void**>(nullptr));
  });
  loads("cuModuleLoadFatBinary", [=] { call("cuModuleLoadFatBinary", &module, image); });
  loads("cuModuleLoad",
        [] { call("cuModuleLoad", &module, static_cast<const char*>("/proc/self/exe")); });
}

void measure_libraries(AllCounts& all) {
  load_library();
  Measurement()
      .step("cuLibraryGetModule", [] { call("cuLibraryGetModule", &module, library); })
      .step("cuLibraryGetGlobal",
            [] {
              call("cuLibraryGetGlobal", &pointer, &bytes, library,
                   static_cast<const char*>("global"));
            })
      .run(all);
  const auto unload = [] { call("cuLibraryUnload", library); };
  Measurement()
      .step("cuLibraryLoadData", load_library)
      .step("cuLibraryUnload (unused)", unload)
      .run(all);
  Measurement().step("cuLibraryLoadFromFile", load_library_file).unmeasured(unload).run(all);
  Measurement()
      .unmeasured(load_library)
      .step("cuLibraryGetModule (first)", [] { call("cuLibraryGetModule", &module, library); })
      .step("cuLibraryUnload", [] { call("cuLibraryUnload", library); })
      .run(all);
}

void measure_functions(AllCounts& all) {
  static void *function = nullptr, *kernel = nullptr;
  const char* const name = "kernel";
  load_library();
  call("cuModuleLoadData", &module, static_cast<const void*>("any"));
  Measurement()
      .step("cuModuleGetFunction", [=] { call("cuModuleGetFunction", &function, module, name); })
      .step("cuLibraryGetKernel", [=] { call("cuLibraryGetKernel", &kernel, library, name); })
      .step("cuKernelGetFunction", [=] { call("cuKernelGetFunction", &function, kernel); })
      .run(all);
}

void measure_look_ups(AllCounts& all) {
  constexpr uint64_t kNoFlags = 0;
  static void* address = nullptr;
  const char* const name = "cuMemAlloc";
  Measurement()
      .step("cuGetProcAddress_v2",
            [=] {
              call("cuGetProcAddress_v2", name, &address, 12000, kNoFlags,
                   static_cast<int*>(nullptr));
            })
      .step("cuGetProcAddress", [=] { call("cuGetProcAddress", name, &address, 12000, kNoFlags); })
      .run(all);
}

void measure_limits(AllCounts& all) {
  struct Limit {
    int which;
    const char* name;
    size_t low, high;
  };
  for (const Limit& limit :
       {Limit{kLimitStack, "stack", 1024, 4096}, Limit{kLimitPrintf, "printf", kPage, kLarge},
        Limit{kLimitHeap, "heap", 8u << 20, kLarge}}) {
    const auto set = [=](size_t value) {
      return [=] { call("cuCtxSetLimit", limit.which, value); };
    };
    const std::string name = std::string("cuCtxSetLimit (") + limit.name;
    Measurement()
        .step(name + " raised)", set(limit.high))
        .step(name + " unchanged)", set(limit.high))
        .step(name + " lowered)", set(limit.low))
        .run(all);
  }
}

void measure_own_contexts(AllCounts& all) {
  const auto back = [] { call("cuCtxSetCurrent", shared.context); };
  const auto pair = [&](const char* make, Measurement::Step create, const char* end) {
    Measurement()
        .step(make, std::move(create))
        .step(end, [=] { call(end, context); })
        .unmeasured(back)
        .run(all);
  };
  void* const none = nullptr;
  pair(
      "cuCtxCreate", [] { call("cuCtxCreate", &context, 0u, 0); }, "cuCtxDestroy");
  pair(
      "cuCtxCreate_v2", [] { call("cuCtxCreate_v2", &context, 0u, 0); }, "cuCtxDestroy_v2");
  pair(
      "cuCtxCreate_v3", [=] { call("cuCtxCreate_v3", &context, none, 0, 0u, 0); },
      "cuCtxDestroy_v2");
  pair(
      "cuCtxCreate_v4", [=] { call("cuCtxCreate_v4", &context, none, 0u, 0); }, "cuCtxDestroy_v2");
  call("cuCtxCreate_v2", &context, 0u, 0);
  Measurement()
      .step("cuCtxAttach", [] { call("cuCtxAttach", &context, 0u); })
      .step("cuCtxDetach", [] { call("cuCtxDetach", context); })
      .run(all);
  call("cuCtxDestroy_v2", context);
  back();
}

void measure_green(AllCounts& all) {
  static CUgreenCtx green;
  static void* description;
  alignas(8) static char resource[144];  // CUdevResource
  constexpr int kMultiprocessors = 1;
  call("cuDeviceGetDevResource", 0, static_cast<void*>(resource), kMultiprocessors);
  call("cuDevResourceGenerateDesc", &description, static_cast<void*>(resource), 1u);
  Measurement()
      .step("cuGreenCtxCreate", [] { call("cuGreenCtxCreate", &green, description, 0, 1u); })
      .step("cuGreenCtxDestroy", [] { call("cuGreenCtxDestroy", green); })
      .run(all);
}

// Ends the primary context, so it comes last.
void measure_primary(AllCounts& all) {
  const auto retain = [] { call("cuDevicePrimaryCtxRetain", &context, 0); };
  for (const char* name : {"cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxRelease"}) {
    Measurement()
        .step("cuDevicePrimaryCtxRetain", retain)
        .step(name, [=] { call(name, 0); })
        .run(all);
  }
  for (const char* name : {"cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxReset"}) {
    Measurement()
        .step(name, [=] { call(name, 0); })
        .step("cuDevicePrimaryCtxRetain (makes it)", retain)
        .unmeasured([] { call("cuDevicePrimaryCtxRelease_v2", 0); })
        .run(all);
  }
}

}  // namespace

void measure_code(AllCounts& all) {
  measure_modules(all);
  measure_libraries(all);
  measure_functions(all);
  measure_look_ups(all);
}

void measure_contexts(AllCounts& all) {
  measure_limits(all);
  measure_own_contexts(all);
  measure_green(all);
  measure_primary(all);
}

}  // namespace client
