// Judges our OpenCL declarations by the CL/cl_icd.h that is found first on the include path.
// That it compiles is the verdict; see judge.h.
#include <stddef.h>
#include <stdint.h>

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl_icd.h>

#include "hooks/opencl/abi.h"
#include "tests/abi/judge.h"

namespace fracgpu::opencl {
#define FRACGPU_HOOKED(position, since, result, name, parameters) \
  using signature_of_##name = result parameters;
#define FRACGPU_CALLED FRACGPU_HOOKED
#include "hooks/opencl/dispatched.inc"
#undef FRACGPU_HOOKED
#undef FRACGPU_CALLED
}  // namespace fracgpu::opencl

namespace {

namespace ours = fracgpu::opencl;
using fracgpu::abi::judge_constant;
using fracgpu::abi::judge_function;
using fracgpu::abi::judge_type;
using fracgpu::abi::Row;
using fracgpu::abi::Verdict;

#define FRACGPU_HOOKED(position, since, result, name, parameters)              \
  static_assert(offsetof(cl_icd_dispatch, name) / sizeof(void*) == (position), \
                #name ": not where the vendor has it");                        \
  static_assert(judge_function<ours::signature_of_##name>(::name) == Verdict::agrees, #name);
#define FRACGPU_CALLED FRACGPU_HOOKED
#include "hooks/opencl/dispatched.inc"
#undef FRACGPU_HOOKED
#undef FRACGPU_CALLED

#define ABI_CONSTANT(mine, theirs) \
  static_assert(judge_constant(ours::mine, theirs) == Verdict::agrees, #theirs);
#define ABI_TYPE(name) static_assert(judge_type<ours::name, ::name>() == Verdict::agrees, #name);
#define ABI_FIELD(type, field) \
  static_assert(offsetof(::type, field) == offsetof(ours::type, field), #type "::" #field);
#include "opencl_table.inc"
#undef ABI_CONSTANT
#undef ABI_TYPE
#undef ABI_FIELD

constexpr Row rows[] = {
#define FRACGPU_HOOKED(position, since, result, name, parameters) \
  {"function", #name, Verdict::agrees},
#define FRACGPU_CALLED FRACGPU_HOOKED
#include "hooks/opencl/dispatched.inc"
};

}  // namespace

int main() {
  return fracgpu::abi::report("cl_icd.h", rows);
}
