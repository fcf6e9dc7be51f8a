// call_counts: how many calls of the driver and of NVML one warm call makes, itself included.
// Prints JSON: {"cuMemAlloc_v2": {"cuMemAlloc_v2": 1}, ...}. Counts what FRACGPU_SIM_CALLS has;
// calls.py runs it with and without the library, and the difference is what the library adds.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "hooks/cuda/abi.h"
#include "sim/node/calls.h"

namespace client {
namespace {

using namespace fracgpu::cuda;

constexpr size_t kSmall = 4u << 10, kPage = 2u << 20, kLarge = 64u << 20;

[[noreturn]] void give_up(const char* what, int result) {
  std::fprintf(stderr, "call_counts: %s: %d\n", what, result);
  std::exit(1);
}

template <typename... Arguments>
void call(const char* name, Arguments... arguments) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  static std::map<std::string, void*> known;
  void*& function = known[name];
  if (function == nullptr && driver != nullptr) function = dlsym(driver, name);
  if (function == nullptr) give_up(name, -1);
  const int result = reinterpret_cast<int (*)(Arguments...)>(function)(arguments...);
  if (result != 0) give_up(name, result);
}

using Counts = std::map<std::string, uint64_t>;

Counts counts_now() {
  static const auto counts = sim::CallCounts::open(std::getenv(sim::kCallsVariable));
  Counts now;
  counts->visit([&](std::string_view name, uint64_t count) { now[std::string(name)] = count; });
  return now;
}

// Repeats all steps together; each measured one is counted by its name.
class Measurement {
 public:
  using Step = std::function<void()>;

  Measurement& step(const char* name, Step step) {
    steps_.push_back({name, std::move(step)});
    return *this;
  }
  Measurement& unmeasured(Step step) { return this->step("", std::move(step)); }

  void run(std::map<std::string, Counts>& all) const {
    // Enough of both that what is amortised shows as a fraction.
    constexpr int kWarm = 100, kMeasured = 100;
    for (int i = 0; i < kWarm + kMeasured; ++i) {
      for (const auto& [name, step] : steps_) {
        const bool measured = i >= kWarm && !name.empty();
        const Counts before = measured ? counts_now() : Counts{};
        step();
        if (!measured) continue;
        for (const auto& [function, count] : counts_now()) {
          const auto known = before.find(function);
          const uint64_t more = count - (known != before.end() ? known->second : 0);
          if (more != 0) all[name][function] += more;
        }
      }
    }
    for (const auto& [name, step] : steps_) {
      if (!name.empty()) all.try_emplace(name);
    }
  }

  static constexpr int kMeasured = 100;

 private:
  std::vector<std::pair<std::string, Step>> steps_;
};

CUdeviceptr pointer, mapped;
CUarray array;
CUmipmappedArray mipmap;
CUmodule module;
CUlibrary library;
CUmemGenericAllocationHandle handle, second_handle;
void *stream, *graph, *exec, *context, *second_context, *function;
CUmemoryPool pool;
size_t bytes, total;

CUDA_ARRAY3D_DESCRIPTOR form_of(size_t width, size_t height) {
  CUDA_ARRAY3D_DESCRIPTOR form = {};
  form.Format = 0x01;  // UNSIGNED_INT8
  form.NumChannels = 1;
  form.Width = width;
  form.Height = height;
  return form;
}

void start() {
  call("cuInit", 0u);
  call("cuDevicePrimaryCtxRetain", &context, 0);
  call("cuCtxSetCurrent", context);
  call("cuStreamCreate", &stream, 1u);
  const void* const code = "any";
  void* const none = nullptr;
  call("cuLibraryLoadData", &library, code, none, none, 0u, none, none, 0u);
  CUmodule loaded = nullptr;
  call("cuModuleLoadData", &loaded, code);
  call("cuModuleGetFunction", &function, loaded, static_cast<const char*>("kernel"));
  call("cuMemAddressReserve", &mapped, kPage, size_t{0}, CUdeviceptr{0}, 0ull);
}

void linear(std::map<std::string, Counts>& all) {
  Measurement()
      .step("cuMemAlloc_v2", [] { call("cuMemAlloc_v2", &pointer, kPage); })
      .step("cuMemFree_v2", [] { call("cuMemFree_v2", pointer); })
      .run(all);
  Measurement()
      .step("cuMemAlloc_v2 (small)", [] { call("cuMemAlloc_v2", &pointer, kSmall); })
      .step("cuMemFree_v2 (small)", [] { call("cuMemFree_v2", pointer); })
      .run(all);
  Measurement()
      .step("cuMemAllocPitch_v2",
            [] { call("cuMemAllocPitch_v2", &pointer, &bytes, kSmall, kSmall, 4u); })
      .unmeasured([] { call("cuMemFree_v2", pointer); })
      .run(all);
  Measurement()
      .step("cuMemAllocManaged", [] { call("cuMemAllocManaged", &pointer, kSmall, 1u); })
      .unmeasured([] { call("cuMemFree_v2", pointer); })
      .run(all);
  Measurement()
      .step("cuMemGetInfo_v2", [] { call("cuMemGetInfo_v2", &bytes, &total); })
      .step("cuDeviceTotalMem_v2", [] { call("cuDeviceTotalMem_v2", &total, 0); })
      .step("cuGetProcAddress_v2",
            [] {
              void* address = nullptr;
              call("cuGetProcAddress_v2", static_cast<const char*>("cuMemAlloc"), &address, 12000,
                   uint64_t{0}, static_cast<int*>(nullptr));
            })
      .run(all);
}

void vmm(std::map<std::string, Counts>& all) {
  static CUmemAllocationProp wanted = {};
  wanted.type = 1;  // CU_MEM_ALLOCATION_TYPE_PINNED
  wanted.location = {.type = kLocationDevice, .id = 0};
  Measurement()
      .step("cuMemCreate",
            [] {
              const CUmemAllocationProp* const properties = &wanted;
              call("cuMemCreate", &handle, kPage, properties, 0ull);
            })
      .step("cuMemMap", [] { call("cuMemMap", mapped, kPage, size_t{0}, handle, 0ull); })
      .step("cuMemRetainAllocationHandle",
            [] {
              call("cuMemRetainAllocationHandle", &second_handle, reinterpret_cast<void*>(mapped));
            })
      .unmeasured([] { call("cuMemRelease", second_handle); })
      .step("cuMemUnmap", [] { call("cuMemUnmap", mapped, kPage); })
      .step("cuMemRelease", [] { call("cuMemRelease", handle); })
      .run(all);
}

void pools(std::map<std::string, Counts>& all) {
  Measurement()
      .step("cuMemAllocAsync", [] { call("cuMemAllocAsync", &pointer, kPage, stream); })
      .step("cuMemFreeAsync", [] { call("cuMemFreeAsync", pointer, stream); })
      .run(all);
  call("cuDeviceGetDefaultMemPool", &pool, 0);
  Measurement()
      .step("cuMemAllocFromPoolAsync",
            [] { call("cuMemAllocFromPoolAsync", &pointer, kPage, pool, stream); })
      .unmeasured([] { call("cuMemFreeAsync", pointer, stream); })
      .step("cuMemPoolTrimTo", [] { call("cuMemPoolTrimTo", pool, size_t{1} << 30); })
      .run(all);
  call("cuStreamSynchronize", stream);
  call("cuMemPoolTrimTo", pool, size_t{0});
}

void make_graph(bool allocates) {
  void* const none = nullptr;
  call("cuStreamBeginCapture_v2", stream, 2);
  if (allocates) {
    call("cuMemAllocAsync", &pointer, kPage, stream);
    call("cuMemFreeAsync", pointer, stream);
  } else {
    call("cuLaunchKernel", function, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream, none, none);
  }
  call("cuStreamEndCapture", stream, &graph);
}

void graphs(std::map<std::string, Counts>& all) {
  const auto launches = [&](const char* name, bool allocates) {
    make_graph(allocates);
    call("cuGraphInstantiateWithFlags", &exec, graph, 0ull);
    Measurement().step(name, [] { call("cuGraphLaunch", exec, stream); }).run(all);
    call("cuStreamSynchronize", stream);
    call("cuGraphExecDestroy", exec);
    call("cuGraphDestroy", graph);
  };
  launches("cuGraphLaunch", false);
  launches("cuGraphLaunch (allocates)", true);
  make_graph(false);
  Measurement()
      .step("cuGraphInstantiateWithFlags",
            [] { call("cuGraphInstantiateWithFlags", &exec, graph, 0ull); })
      .step("cuGraphExecUpdate_v2",
            [] {
              char result[64] = {};  // CUgraphExecUpdateResultInfo, which is shorter
              call("cuGraphExecUpdate_v2", exec, graph, static_cast<void*>(result));
            })
      .step("cuGraphExecDestroy", [] { call("cuGraphExecDestroy", exec); })
      .run(all);
}

void arrays(std::map<std::string, Counts>& all) {
  const auto plain = [&](const char* make, const char* drop, size_t width, size_t height) {
    Measurement()
        .step(make,
              [=] {
                const CUDA_ARRAY3D_DESCRIPTOR form = form_of(width, height);
                call("cuArray3DCreate_v2", &array, &form);
              })
        .step(drop, [] { call("cuArrayDestroy", array); })
        .run(all);
  };
  plain("cuArray3DCreate_v2", "cuArrayDestroy", 4096, 4096);
  plain("cuArray3DCreate_v2 (small)", "cuArrayDestroy (small)", 4096, 0);
  Measurement()
      .step("cuMipmappedArrayCreate",
            [] {
              const CUDA_ARRAY3D_DESCRIPTOR form = form_of(4096, 4096);
              call("cuMipmappedArrayCreate", &mipmap, &form, 4u);
            })
      .step("cuMipmappedArrayDestroy", [] { call("cuMipmappedArrayDestroy", mipmap); })
      .run(all);
}

void code(std::map<std::string, Counts>& all) {
  Measurement()
      .step("cuModuleLoadData",
            [] { call("cuModuleLoadData", &module, static_cast<const void*>("4 MiB")); })
      .step("cuModuleUnload", [] { call("cuModuleUnload", module); })
      .run(all);
  Measurement()
      .step("cuLibraryGetModule", [] { call("cuLibraryGetModule", &module, library); })
      .step("cuLibraryGetGlobal",
            [] {
              call("cuLibraryGetGlobal", &pointer, &bytes, library,
                   static_cast<const char*>("global"));
            })
      .run(all);
}

void contexts(std::map<std::string, Counts>& all) {
  Measurement()
      .step("cuDevicePrimaryCtxRetain", [] { call("cuDevicePrimaryCtxRetain", &context, 0); })
      .step("cuDevicePrimaryCtxRelease_v2", [] { call("cuDevicePrimaryCtxRelease_v2", 0); })
      .run(all);
  Measurement()
      .step("cuCtxSetLimit (raises)", [] { call("cuCtxSetLimit", 2, kLarge); })
      .step("cuCtxSetLimit (lowers)", [] { call("cuCtxSetLimit", 2, size_t{8} << 20); })
      .run(all);
  Measurement()
      .step("cuCtxCreate_v2", [] { call("cuCtxCreate_v2", &second_context, 0u, 0); })
      .step("cuCtxDestroy_v2", [] { call("cuCtxDestroy_v2", second_context); })
      .unmeasured([] { call("cuCtxSetCurrent", context); })
      .run(all);
}

void print(const std::map<std::string, Counts>& all) {
  std::printf("{\"calls\": %d, \"counts\": {", Measurement::kMeasured);
  const char* before = "";
  for (const auto& [name, counts] : all) {
    std::printf("%s\n  \"%s\": {", before, name.c_str());
    const char* inner = "";
    for (const auto& [callee, count] : counts) {
      std::printf("%s\"%s\": %llu", inner, callee.c_str(), static_cast<unsigned long long>(count));
      inner = ", ";
    }
    std::printf("}");
    before = ",";
  }
  std::printf("\n}}\n");
}

}  // namespace
}  // namespace client

int main() {
  if (std::getenv(sim::kCallsVariable) == nullptr)
    client::give_up("FRACGPU_SIM_CALLS is not set", 2);
  std::map<std::string, client::Counts> all;
  client::start();
  client::linear(all);
  client::vmm(all);
  client::pools(all);
  client::graphs(all);
  client::arrays(all);
  client::code(all);
  client::contexts(all);
  client::print(all);
  return 0;
}
