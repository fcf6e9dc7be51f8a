// NVIDIA's ICD, the library behind an OpenCL loader, and its functions.
//
// Every OpenCL object begins with a pointer to its ICD's dispatch table. Loaders, and programs
// without a loader, call the ICD through that table. So hooks in the table see each call, whichever
// library the program called. They are installed once, when the ICD is first asked for its
// platforms. `real::name(…)` calls the original function.
#pragma once

#include <atomic>

#include "hooks/opencl/abi.h"
#include "shim/vendor/vendor_library.h"

namespace fracgpu::opencl {

extern VendorLibrary icd_library;

namespace slot {
enum Number : uint8_t {
#define FRACGPU_HOOKED(position, since, result, name, parameters) name,
#define FRACGPU_CALLED FRACGPU_HOOKED
#include "hooks/opencl/dispatched.inc"
#undef FRACGPU_HOOKED
#undef FRACGPU_CALLED
  count
};
}  // namespace slot

// Null before the table is patched, and for functions that the ICD lacks.
inline constinit std::atomic<void*> originals[slot::count] = {};

template <typename Signature>
struct Original;

template <typename Result, typename... Parameters>
struct Original<Result(Parameters...)> {
  slot::Number number;

  bool exists() const { return originals[number].load(std::memory_order_relaxed) != nullptr; }
  // Call only if it exists.
  Result operator()(Parameters... parameters) const {
    void* const function = originals[number].load(std::memory_order_acquire);
    return reinterpret_cast<Result (*)(Parameters...)>(function)(parameters...);
  }
};

namespace real {
#define FRACGPU_HOOKED(position, since, result, name, parameters) \
  inline constexpr Original<result parameters> name{slot::name};
#define FRACGPU_CALLED FRACGPU_HOOKED
#include "hooks/opencl/dispatched.inc"
#undef FRACGPU_HOOKED
#undef FRACGPU_CALLED
}  // namespace real

// The hooks. They export no OpenCL name: programs that are linked with a loader would bind to it.
#define FRACGPU_HOOKED(position, since, result, name, parameters) result name parameters;
#define FRACGPU_CALLED(position, since, result, name, parameters)
#include "hooks/opencl/dispatched.inc"
#undef FRACGPU_HOOKED
#undef FRACGPU_CALLED

// Only clGetExtensionFunctionAddress hands this function out (memory.cc).
// `original_create_buffer_nv` is the ICD's own function.
inline constinit std::atomic<void*> original_create_buffer_nv{nullptr};
cl_mem clCreateBufferNV(cl_context context, cl_bitfield flags, cl_bitfield flags_nv, size_t bytes,
                        void* host, cl_int* error);

}  // namespace fracgpu::opencl
