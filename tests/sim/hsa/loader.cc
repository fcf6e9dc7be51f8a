// The loader's extension, version 1.03, which programs get as a table and not by name.
// Code lies in memory that the host can read, so a device address is its own host address.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "sim/hsa/code.h"

using sim::answer;
using sim::code;
using sim::Executable;
using sim::Guard;
using sim::LoadedCode;
using sim::Runtime;

hsa_status_t sim_reader_create_from_part(hsa_file_t file, size_t offset, size_t bytes,
                                         hsa_code_object_reader_t* out);

namespace {

hsa_status_t host_address(const void* address, const void** out) {
  SIM_CALL(hsa_ven_amd_loader_query_host_address);
  if (address == nullptr || out == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Guard guard(Runtime::get().lock());
  if (code().around(reinterpret_cast<uint64_t>(address)) == nullptr)
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  *out = address;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t segments(hsa_ven_amd_loader_segment_descriptor_t* out, size_t* count) {
  SIM_CALL(hsa_ven_amd_loader_query_segment_descriptors);
  if (count == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Guard guard(Runtime::get().lock());
  size_t number = 0;
  for (const auto& [handle, executable] : code().executables) {
    for (const LoadedCode& loaded : executable->loaded) {
      if (out != nullptr && number < *count) {
        out[number] = {sim::handle(*loaded.agent),
                       {handle},
                       HSA_VEN_AMD_LOADER_CODE_OBJECT_STORAGE_TYPE_MEMORY,
                       loaded.storage,
                       loaded.storage_bytes,
                       0,
                       reinterpret_cast<const void*>(loaded.base),
                       loaded.bytes};
      }
      ++number;
    }
  }
  if (out == nullptr) *count = number;
  return out == nullptr || number == *count ? HSA_STATUS_SUCCESS
                                            : HSA_STATUS_ERROR_INVALID_ARGUMENT;
}

hsa_status_t executable_at(const void* address, hsa_executable_t* out) {
  SIM_CALL(hsa_ven_amd_loader_query_executable);
  if (address == nullptr || out == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Guard guard(Runtime::get().lock());
  const LoadedCode* loaded = code().around(reinterpret_cast<uint64_t>(address));
  if (loaded == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  out->handle = reinterpret_cast<uint64_t>(loaded->executable);
  return HSA_STATUS_SUCCESS;
}

hsa_status_t iterate_loaded(hsa_executable_t given,
                            hsa_status_t (*callback)(hsa_executable_t, hsa_loaded_code_object_t,
                                                     void*),
                            void* data) {
  SIM_CALL(hsa_ven_amd_loader_executable_iterate_loaded_code_objects);
  if (callback == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  std::vector<hsa_loaded_code_object_t> found;
  {
    const Guard guard(Runtime::get().lock());
    const Executable* executable = code().executable(given.handle);
    if (executable == nullptr) return HSA_STATUS_ERROR_INVALID_EXECUTABLE;
    for (const LoadedCode& loaded : executable->loaded)
      found.push_back({reinterpret_cast<uint64_t>(&loaded)});
  }
  for (const hsa_loaded_code_object_t loaded : found) {
    const hsa_status_t result = callback(given, loaded, data);
    if (result != HSA_STATUS_SUCCESS) return result;
  }
  return HSA_STATUS_SUCCESS;
}

std::string uri_of(const LoadedCode& loaded) {
  char text[128];
  std::snprintf(text, sizeof text, "memory://%d#offset=0x%llx&size=%zu", getpid(),
                static_cast<unsigned long long>(reinterpret_cast<uint64_t>(loaded.storage)),
                loaded.storage_bytes);
  return text;
}

hsa_status_t loaded_info(hsa_loaded_code_object_t given,
                         hsa_ven_amd_loader_loaded_code_object_info_t attribute, void* value) {
  SIM_CALL(hsa_ven_amd_loader_loaded_code_object_get_info);
  if (given.handle == 0 || value == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const LoadedCode& loaded = *reinterpret_cast<const LoadedCode*>(given.handle);
  switch (attribute) {
    case HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_INFO_EXECUTABLE:
      return answer(value, reinterpret_cast<uint64_t>(loaded.executable));
    case HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_INFO_KIND:
      return answer<uint32_t>(value, HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_KIND_AGENT);
    case HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_INFO_AGENT:
      return answer(value, sim::handle(*loaded.agent));
    case HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_INFO_CODE_OBJECT_STORAGE_TYPE:
      return answer<uint32_t>(value, HSA_VEN_AMD_LOADER_CODE_OBJECT_STORAGE_TYPE_MEMORY);
    case HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_INFO_CODE_OBJECT_STORAGE_MEMORY_BASE:
      return answer(value, reinterpret_cast<uint64_t>(loaded.storage));
    case HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_INFO_CODE_OBJECT_STORAGE_MEMORY_SIZE:
      return answer<uint64_t>(value, loaded.storage_bytes);
    case HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_INFO_LOAD_DELTA:
      return answer<uint64_t>(value, loaded.base - loaded.lowest);
    case HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_INFO_LOAD_BASE:
      return answer<uint64_t>(value, loaded.base);
    case HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_INFO_LOAD_SIZE:
      return answer<uint64_t>(value, loaded.bytes);
    case HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_INFO_URI_LENGTH:
      return answer(value, static_cast<uint32_t>(uri_of(loaded).size()));
    case HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_INFO_URI:
      std::memcpy(value, uri_of(loaded).c_str(), uri_of(loaded).size() + 1);
      return HSA_STATUS_SUCCESS;
    default:
      sim::unanswered("hsa_ven_amd_loader_loaded_code_object_get_info", attribute);
      return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  }
}

hsa_status_t iterate_executables(hsa_status_t (*callback)(hsa_executable_t, void*), void* data) {
  SIM_CALL(hsa_ven_amd_loader_iterate_executables);
  if (callback == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  std::vector<uint64_t> found;
  {
    const Guard guard(Runtime::get().lock());
    for (const auto& [handle, executable] : code().executables) found.push_back(handle);
  }
  for (const uint64_t handle : found) {
    const hsa_status_t result = callback({handle}, data);
    if (result != HSA_STATUS_SUCCESS) return result;
  }
  return HSA_STATUS_SUCCESS;
}

}  // namespace

namespace sim {

const hsa_ven_amd_loader_1_03_pfn_t& loader_table() {
  static const hsa_ven_amd_loader_1_03_pfn_t table = {
      host_address,       segments,    executable_at,
      iterate_loaded,     loaded_info, sim_reader_create_from_part,
      iterate_executables};
  return table;
}

}  // namespace sim
