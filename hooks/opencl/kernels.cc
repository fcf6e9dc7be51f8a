// Kernels: a launch takes local memory for the kernel's threads and keeps it as long as the context
// lives.
//
// Launches are not hooked. So that memory is charged when the kernel is created, and the kernel is
// refused as the launch would be. The amount follows the rule for CUDA (cuda::local_memory), which
// was also measured with OpenCL 535.261.03 for 2,048, 4,096 and 16,384 bytes.
#include "hooks/cuda/context_size.h"
#include "hooks/cuda/limits.h"
#include "hooks/opencl/hook.h"

namespace fracgpu::opencl {
namespace {

constexpr uint64_t kLocalOfContext = 1024;  // bytes of a thread, which a context has from the start

// The most threads that one of the device's multiprocessors runs at once (CUDA programming guide,
// "Technical Specifications per Compute Capability").
int threads_of_multiprocessor(int major, int minor) {
  if (major == 7 && minor == 5) return 1024;
  if ((major == 8 && minor > 0) || major >= 11) return 1536;
  return 2048;
}

uint64_t local_memory(cl_device_id device, uint64_t bytes) {
  const auto ask = [&](cl_uint name) {
    int value = 0;
    real::clGetDeviceInfo(device, name, sizeof value, &value, nullptr);
    return value;
  };
  return cuda::local_memory(bytes, ask(kComputeUnits),
                            threads_of_multiprocessor(ask(kComputeMajor), ask(kComputeMinor)));
}

// Makes room for a launch of the kernel. False if it is refused.
bool reserve_local_memory(Process& process, cl_kernel kernel, const char* api) {
  cl_context handle = nullptr;
  if (!cuda::reserve_local.get().value_or(true) ||
      real::clGetKernelInfo(kernel, kKernelContext, sizeof handle, &handle, nullptr) != kSuccess) {
    return true;
  }
  DeferredMemory::Context* const context = context_of(process, handle);
  cl_device_id devices[Process::kSlotsOfVendor] = {};
  size_t bytes = 0;
  if (context == nullptr || real::clGetContextInfo(handle, kContextDevices, sizeof devices, devices,
                                                   &bytes) != kSuccess) {
    return true;
  }
  const Locked<SleepLock> alone(process.limits);
  const uint64_t before = std::max(context->local_bytes, kLocalOfContext);
  uint64_t after = before, units = 0;
  for (size_t i = 0; i < bytes / sizeof devices[0]; ++i) {
    unsigned long needed = 0;
    real::clGetKernelWorkGroupInfo(kernel, devices[i], kPrivateMemory, sizeof needed, &needed,
                                   nullptr);
    if (needed <= before) continue;
    after = std::max<uint64_t>(after, needed);
    units = std::max(units, local_memory(devices[i], needed) - local_memory(devices[i], before));
  }
  if (units == 0) return true;
  DeferredMemory::Block* const block =
      make_block(process, *context, {.kind = DeferredMemory::Kind::linear, .units = units}, api);
  if (block == nullptr) return false;
  block->next = context->local_memory;
  context->local_memory = block;
  context->local_bytes = after;
  return true;
}

}  // namespace

cl_kernel clCreateKernel(cl_program program, const char* name, cl_int* error) {
  const Hook hook;
  const cl_kernel kernel = real::clCreateKernel(program, name, error);
  if (kernel == nullptr || !hook.active() ||
      reserve_local_memory(hook.process(), kernel, "clCreateKernel")) {
    return kernel;
  }
  real::clReleaseKernel(kernel);
  return refuse(error, kOutOfHostMemory);
}

cl_int clCreateKernelsInProgram(cl_program program, cl_uint entries, cl_kernel* kernels,
                                cl_uint* count) {
  const Hook hook;
  cl_uint made = 0;
  const cl_int result = real::clCreateKernelsInProgram(program, entries, kernels, &made);
  if (count != nullptr) *count = made;
  if (result != kSuccess || kernels == nullptr || !hook.active()) return result;
  for (cl_uint i = 0; i < made; ++i) {
    if (reserve_local_memory(hook.process(), kernels[i], "clCreateKernelsInProgram")) continue;
    for (cl_uint each = 0; each < made; ++each) real::clReleaseKernel(kernels[each]);
    return kOutOfHostMemory;
  }
  return result;
}

}  // namespace fracgpu::opencl
