// Patches the ICD's dispatch table; see icd.h.
#include "hooks/opencl/icd.h"

#include <string.h>

#include <algorithm>

#include "shim/config/cap_configured.h"

namespace fracgpu::opencl {
namespace {

// The functions that a loader looks up in the ICD. Other libraries export these names too, among
// them every loader.
enum Looked : uint8_t { kGetExtensionFunctionAddress, kGetPlatformIds, kLookedUp };
constexpr char names[] = "clGetExtensionFunctionAddress\0clIcdGetPlatformIDsKHR\0";
constexpr NameIndex<kLookedUp> name_index(names);

constinit std::atomic<void*> looked_up[kLookedUp] = {}, wrapped[kLookedUp] = {};
constinit std::atomic<uint16_t> by_address[FunctionTable::kAddressSlots] = {};

using GetAddress = void* (*)(const char* name);
using GetPlatforms = cl_int (*)(cl_uint entries, cl_platform_id* platforms, cl_uint* count);

void* hook_of(slot::Number number) {
  switch (number) {
#define FRACGPU_HOOKED(position, since, result, name, parameters) \
  case slot::name:                                                \
    return reinterpret_cast<void*>(&name);
#define FRACGPU_CALLED(position, since, result, name, parameters)
#include "hooks/opencl/dispatched.inc"
#undef FRACGPU_HOOKED
#undef FRACGPU_CALLED
    default:
      return nullptr;
  }
}

struct Position {
  uint16_t in_table;
  uint16_t since;
};
constexpr Position positions[] = {
#define FRACGPU_HOOKED(position, since, result, name, parameters) {position, since},
#define FRACGPU_CALLED FRACGPU_HOOKED
#include "hooks/opencl/dispatched.inc"
#undef FRACGPU_HOOKED
#undef FRACGPU_CALLED
};

using Table = std::atomic<void*>;

Table* table_of(cl_platform_id platform) {
  return *reinterpret_cast<Table**>(platform);
}

// The version that the platform reports: "OpenCL 3.0 CUDA 12.2.149" is 300. The table has no
// entries of later versions.
int version_of(cl_platform_id platform) {
  constexpr char kBegin[] = "OpenCL ";
  constexpr size_t kDigits = sizeof kBegin - 1;
  using GetInfo = cl_int (*)(cl_platform_id, cl_uint, size_t, void*, size_t*);
  const auto get_info = reinterpret_cast<GetInfo>(
      table_of(platform)[positions[slot::clGetPlatformInfo].in_table].load());
  char text[256] = "";
  if (get_info == nullptr ||
      get_info(platform, kPlatformVersion, sizeof text - 1, text, nullptr) != kSuccess ||
      strncmp(text, kBegin, kDigits) != 0 || text[kDigits + 1] != '.') {
    return 0;
  }
  return (text[kDigits] - '0') * 100 + (text[kDigits + 2] - '0') * 10;
}

// Racing threads write the same values. A thread that finds a hook in the table also finds its
// original.
void patch(cl_platform_id platform) {
  Table* const table = table_of(platform);
  const int version = version_of(platform);
  for (int i = 0; i < slot::count; ++i) {
    const auto number = static_cast<slot::Number>(i);
    const Position& position = positions[i];
    if (position.since > version) continue;
    void* const found = table[position.in_table].load();
    void* const hook = hook_of(number);
    if (found == nullptr || found == hook) continue;
    originals[i].store(found);
    if (hook != nullptr) table[position.in_table].store(hook);
  }
}

cl_int get_platforms(cl_uint entries, cl_platform_id* platforms, cl_uint* count) {
  const auto real = reinterpret_cast<GetPlatforms>(looked_up[kGetPlatformIds].load());
  cl_uint found = 0;
  const cl_int result = real(entries, platforms, &found);
  if (count != nullptr) *count = found;
  if (result != kSuccess || platforms == nullptr || !cap_is_configured()) return result;
  std::for_each(platforms, platforms + std::min(entries, found), patch);
  return result;
}

// Returns the function to hand out instead of the one at this address.
void* answer(const char* name, void* address) {
  if (address == nullptr || name == nullptr) return address;
  if (strcmp(name, "clIcdGetPlatformIDsKHR") == 0) {
    looked_up[kGetPlatformIds].store(address);
    return reinterpret_cast<void*>(&get_platforms);
  }
  if (strcmp(name, "clCreateBufferNV") == 0) {
    original_create_buffer_nv.store(address);
    return reinterpret_cast<void*>(&clCreateBufferNV);
  }
  for (int i = 0; i < slot::count; ++i) {
    void* const hook = hook_of(static_cast<slot::Number>(i));
    if (originals[i].load() == address && hook != nullptr) return hook;
  }
  return address;
}

void* get_address(const char* name) {
  return answer(name,
                reinterpret_cast<GetAddress>(looked_up[kGetExtensionFunctionAddress].load())(name));
}

constexpr FunctionTable functions{
    .count = kLookedUp,
    .names = names,
    .name_begins = name_index.begin.data(),
    .by_name = name_index.sorted.data(),
    .hook_of =
        [](size_t number) {
          return number == kGetPlatformIds ? reinterpret_cast<void*>(&get_platforms)
                                           : reinterpret_cast<void*>(&get_address);
        },
    .real = looked_up,
    .wrapped = wrapped,
    .by_address = by_address,
};

}  // namespace

constinit VendorLibrary icd_library("cl", {"libnvidia-opencl.so"}, functions, nullptr,
                                    VendorLibrary::Names::shared);

void* clGetExtensionFunctionAddress(const char* name) {
  return answer(name, real::clGetExtensionFunctionAddress(name));
}

void* clGetExtensionFunctionAddressForPlatform(cl_platform_id platform, const char* name) {
  return answer(name, real::clGetExtensionFunctionAddressForPlatform(platform, name));
}

}  // namespace fracgpu::opencl
