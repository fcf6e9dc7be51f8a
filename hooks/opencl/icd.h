// NVIDIA's ICD, the library behind an OpenCL loader, and its functions.
//
// Every object of OpenCL begins with a pointer to its ICD's dispatch table, by which loaders, and
// programs without one, call the ICD: so hooks in that table see each call, whichever library the
// program called. They are put in once, when the ICD is first asked for its platforms.
// `real::name(…)` calls what stood there.
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
  // Only where it exists.
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

// The hooks. No name of OpenCL is exported: programs that are linked with a loader would be bound
// to ours.
#define FRACGPU_HOOKED(position, since, result, name, parameters) result name parameters;
#define FRACGPU_CALLED(position, since, result, name, parameters)
#include "hooks/opencl/dispatched.inc"
#undef FRACGPU_HOOKED
#undef FRACGPU_CALLED

// A function that only clGetExtensionFunctionAddress hands out (memory.cc). `real_create_buffer` is
// the ICD's own.
inline constinit std::atomic<void*> original_create_buffer_nv{nullptr};
cl_mem clCreateBufferNV(cl_context context, cl_bitfield flags, cl_bitfield flags_nv, size_t bytes,
                        void* host, cl_int* error);

}  // namespace fracgpu::opencl
