// A capture in one thread, and in another each call that the library makes of its own accord, or
// that a program makes and the library hooks: which of them fail, or end the capture?
#include <functional>
#include <thread>

#include "tests/hardware/cuda.h"
#include "tests/hardware/graph.h"
#include "tests/hardware/kernels.h"
#include "tests/hardware/probes.h"

namespace hardware {
namespace {

constexpr int kGlobal = 0, kRelaxed = 2;  // CU_STREAM_CAPTURE_MODE_…

struct Call {
  const char* name;
  std::function<int()> make;
};

// What the calls need, made before any capture.
struct Things {
  CUstream stream = nullptr;  // not captured
  CUmemoryPool pool = nullptr;
  CUdeviceptr address = 0;
  CUcontext context = nullptr;
};

std::vector<Call> calls(Things& things) {
  return {
      {"cuMemPoolGetAttribute",
       [&] {
         unsigned long long value = 0;
         void* const out = &value;
         return try_cuda("cuMemPoolGetAttribute", things.pool, kPoolReserved, out);
       }},
      {"cuMemPoolTrimTo", [&] { return try_cuda("cuMemPoolTrimTo", things.pool, size_t{0}); }},
      {"cuDeviceGetMemPool",
       [] {
         CUmemoryPool pool = nullptr;
         return try_cuda("cuDeviceGetMemPool", &pool, CUdevice{0});
       }},
      {"cuDeviceGetGraphMemAttribute",
       [] {
         unsigned long long value = 0;
         void* const out = &value;
         return try_cuda("cuDeviceGetGraphMemAttribute", CUdevice{0}, kGraphReserved, out);
       }},
      {"cuDeviceGraphMemTrim", [] { return try_cuda("cuDeviceGraphMemTrim", CUdevice{0}); }},
      {"cuCtxGetDevice",
       [] {
         CUdevice device = 0;
         return try_cuda("cuCtxGetDevice", &device);
       }},
      {"cuStreamGetCtx",
       [&] {
         CUcontext context = nullptr;
         return try_cuda("cuStreamGetCtx", things.stream, &context);
       }},
      {"cuStreamIsCapturing",
       [&] {
         int status = 0;
         return try_cuda("cuStreamIsCapturing", things.stream, &status);
       }},
      {"cuPointerGetAttribute",
       [&] {
         int ordinal = 0;
         void* const out = &ordinal;
         return try_cuda("cuPointerGetAttribute", out, kPointerDevice, things.address);
       }},
      {"cuMemGetInfo",
       [] {
         size_t free = 0, total = 0;
         return try_cuda("cuMemGetInfo_v2", &free, &total);
       }},
      {"cuMemAllocAsync",
       [&] {
         CUdeviceptr address = 0;
         return try_cuda("cuMemAllocAsync", &address, size_t{2 * kMiB}, things.stream);
       }},
      {"cuMemAlloc",
       [] {
         CUdeviceptr address = 0;
         return try_cuda("cuMemAlloc_v2", &address, size_t{2 * kMiB});
       }},
      {"cuMemCreate",
       [] {
         const CUmemAllocationProp properties = device_memory();
         const CUmemAllocationProp* wanted = &properties;
         CUmemGenericAllocationHandle handle = 0;
         return try_cuda("cuMemCreate", &handle, size_t{granularity()}, wanted, 0ull);
       }},
      {"cuModuleLoadData",
       [] {
         load_ptx(kSpin);
         return 0;
       }},
  };
}

// The call's result in a thread of its own, in this mode; -1 where the driver lacks a function.
int result_in_other_thread(const Call& call, CUcontext context, int mode) {
  int rc = -1;
  std::thread other([&] {
    try {
      cuda("cuCtxSetCurrent", context);
      cuda("cuThreadExchangeStreamCaptureMode", &mode);
      rc = call.make();
    } catch (const std::exception&) {
      rc = -1;
    }
  });
  other.join();
  return rc;
}

// The names of those calls that fail while this thread captures and another thread, in this mode,
// makes them, or that end the capture. "none" for none. What fails at any time is left out.
std::string harmful(Things& things, int mode_of_other) {
  std::string names;
  for (const Call& call : calls(things)) {
    if (result_in_other_thread(call, things.context, mode_of_other) != 0) continue;
    CUstream captured = nullptr;
    cuda("cuStreamCreate", &captured, 1u);
    cuda("cuStreamBeginCapture_v2", captured, kGlobal);
    const int rc = result_in_other_thread(call, things.context, mode_of_other);
    CUgraph graph = nullptr;
    const int ended = try_cuda("cuStreamEndCapture", captured, &graph);
    if (ended == 0) cuda("cuGraphDestroy", graph);
    cuda("cuStreamDestroy_v2", captured);
    if (rc != 0 || ended != 0) names += (names.empty() ? "" : " ") + std::string(call.name);
  }
  return names.empty() ? "none" : names;
}

}  // namespace

void ask_capture(const Options& options) {
  const std::string with = "capture." + options.text("with", "plain");
  const std::string global = with + ".harmful_calls", relaxed = with + ".harmful_when_relaxed";
  question({global.c_str(), relaxed.c_str()}, [&] {
    Things things;
    things.context = begin_cuda();
    cuda("cuStreamCreate", &things.stream, 1u);
    cuda("cuDeviceGetDefaultMemPool", &things.pool, CUdevice{0});
    cuda("cuMemAlloc_v2", &things.address, size_t{kMiB});
    fact(relaxed, harmful(things, kRelaxed));
    fact(global, harmful(things, kGlobal));
  });
}

}  // namespace hardware
