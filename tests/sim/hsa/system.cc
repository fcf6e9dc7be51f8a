// Questions about the whole system, its extensions, and what statuses are called.
// Only the loader's extension has a table here; the others' functions are also exported by name.
#include <algorithm>
#include <cstring>

#include "sim/hsa/code.h"
#include "sim/hsa/signal.h"

using sim::answer;
using sim::Runtime;

namespace {

struct StatusName {
  uint32_t status;
  const char* text;
};
#define SIM_STATUS(name) \
  { name, #name }
constexpr StatusName kStatusNames[] = {
    SIM_STATUS(HSA_STATUS_SUCCESS),
    SIM_STATUS(HSA_STATUS_INFO_BREAK),
    SIM_STATUS(HSA_STATUS_ERROR),
    SIM_STATUS(HSA_STATUS_ERROR_INVALID_ARGUMENT),
    SIM_STATUS(HSA_STATUS_ERROR_INVALID_QUEUE_CREATION),
    SIM_STATUS(HSA_STATUS_ERROR_INVALID_ALLOCATION),
    SIM_STATUS(HSA_STATUS_ERROR_INVALID_AGENT),
    SIM_STATUS(HSA_STATUS_ERROR_INVALID_REGION),
    SIM_STATUS(HSA_STATUS_ERROR_INVALID_SIGNAL),
    SIM_STATUS(HSA_STATUS_ERROR_INVALID_QUEUE),
    SIM_STATUS(HSA_STATUS_ERROR_OUT_OF_RESOURCES),
    SIM_STATUS(HSA_STATUS_ERROR_RESOURCE_FREE),
    SIM_STATUS(HSA_STATUS_ERROR_NOT_INITIALIZED),
    SIM_STATUS(HSA_STATUS_ERROR_INVALID_ISA),
    SIM_STATUS(HSA_STATUS_ERROR_INVALID_CODE_OBJECT),
    SIM_STATUS(HSA_STATUS_ERROR_INVALID_EXECUTABLE),
    SIM_STATUS(HSA_STATUS_ERROR_FROZEN_EXECUTABLE),
    SIM_STATUS(HSA_STATUS_ERROR_INVALID_SYMBOL_NAME),
    SIM_STATUS(HSA_STATUS_ERROR_INVALID_EXECUTABLE_SYMBOL),
    SIM_STATUS(HSA_STATUS_ERROR_INVALID_CODE_OBJECT_READER),
    SIM_STATUS(HSA_STATUS_ERROR_INVALID_MEMORY_POOL),
    {sim::kStatusResourceBusy, "HSA_STATUS_ERROR_RESOURCE_BUSY"},
    {sim::kStatusNotSupported, "HSA_STATUS_ERROR_NOT_SUPPORTED"},
};

bool has_extension(uint32_t extension) {
  return extension == HSA_EXTENSION_IMAGES || extension == HSA_EXTENSION_AMD_LOADER;
}

hsa_status_t supported(uint32_t extension, bool* out) {
  if (out == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  *out = has_extension(extension);
  return HSA_STATUS_SUCCESS;
}

hsa_status_t table(uint32_t extension, uint16_t major, size_t length, void* out) {
  if (out == nullptr || length == 0) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  std::memset(out, 0, length);
  if (extension != HSA_EXTENSION_AMD_LOADER || major != 1) {
    sim::unanswered("hsa_system_get_major_extension_table", extension);
    return HSA_STATUS_ERROR;
  }
  const hsa_ven_amd_loader_1_03_pfn_t& loader = sim::loader_table();
  std::memcpy(out, &loader, std::min(length, sizeof loader));
  return HSA_STATUS_SUCCESS;
}

}  // namespace

SIM_API hsa_status_t hsa_system_get_info(hsa_system_info_t attribute, void* value) {
  SIM_CALL(hsa_system_get_info);
  if (value == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  switch (static_cast<uint32_t>(attribute)) {
    case HSA_SYSTEM_INFO_VERSION_MAJOR:
    case HSA_SYSTEM_INFO_VERSION_MINOR:
      return answer<uint16_t>(value, 1);
    case HSA_SYSTEM_INFO_TIMESTAMP:
      return answer<uint64_t>(value, sim::timestamp());
    case HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY:
      return answer<uint64_t>(value, 1000000000);
    case HSA_SYSTEM_INFO_SIGNAL_MAX_WAIT:
      return answer<uint64_t>(value, UINT64_MAX);
    case HSA_SYSTEM_INFO_ENDIANNESS:
      return answer(value, HSA_ENDIANNESS_LITTLE);
    case HSA_SYSTEM_INFO_MACHINE_MODEL:
      return answer(value, HSA_MACHINE_MODEL_LARGE);
    case HSA_SYSTEM_INFO_EXTENSIONS: {
      uint8_t bits[128] = {};
      for (uint32_t i = 0; i < 8 * sizeof bits; ++i) {
        if (has_extension(i)) bits[i / 8] = static_cast<uint8_t>(bits[i / 8] | 1 << i % 8);
      }
      std::memcpy(value, bits, sizeof bits);
      return HSA_STATUS_SUCCESS;
    }
    case HSA_AMD_SYSTEM_INFO_BUILD_VERSION:
      return answer(value, static_cast<const char*>("simulated"));
    case HSA_AMD_SYSTEM_INFO_SVM_SUPPORTED:
    case sim::kSystemDmabuf:
    case sim::kSystemVmem:
      return answer(value, true);
    case HSA_AMD_SYSTEM_INFO_SVM_ACCESSIBLE_BY_DEFAULT:
    case sim::kSystemXnack:
    case sim::kSystemMwaitx:
      return answer(value, false);
    case sim::kSystemExtMajor:
      return answer<uint16_t>(value, 1);
    case sim::kSystemExtMinor:
      return answer<uint16_t>(value, 15);
    default:
      sim::unanswered("hsa_system_get_info", attribute);
      return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  }
}

SIM_API hsa_status_t hsa_status_string(hsa_status_t status, const char** out) {
  SIM_CALL(hsa_status_string);
  if (out == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  for (const StatusName& name : kStatusNames) {
    if (name.status != static_cast<uint32_t>(status)) continue;
    *out = name.text;
    return HSA_STATUS_SUCCESS;
  }
  return HSA_STATUS_ERROR_INVALID_ARGUMENT;
}

SIM_API hsa_status_t hsa_extension_get_name(uint16_t extension, const char** out) {
  SIM_CALL(hsa_extension_get_name);
  if (out == nullptr || !has_extension(extension)) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  *out = extension == HSA_EXTENSION_IMAGES ? "HSA_EXTENSION_IMAGES" : "HSA_EXTENSION_AMD_LOADER";
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_system_extension_supported(uint16_t extension, uint16_t /*major*/,
                                                    uint16_t /*minor*/, bool* out) {
  SIM_CALL(hsa_system_extension_supported);
  return supported(extension, out);
}

SIM_API hsa_status_t hsa_system_major_extension_supported(uint16_t extension, uint16_t /*major*/,
                                                          uint16_t* minor, bool* out) {
  SIM_CALL(hsa_system_major_extension_supported);
  if (minor != nullptr) *minor = extension == HSA_EXTENSION_AMD_LOADER ? 3 : 0;
  return supported(extension, out);
}

SIM_API hsa_status_t hsa_agent_extension_supported(uint16_t extension, hsa_agent_t agent,
                                                   uint16_t /*major*/, uint16_t /*minor*/,
                                                   bool* out) {
  SIM_CALL(hsa_agent_extension_supported);
  if (Runtime::get().find(agent) == nullptr) return HSA_STATUS_ERROR_INVALID_AGENT;
  return supported(extension, out);
}

SIM_API hsa_status_t hsa_agent_major_extension_supported(uint16_t extension, hsa_agent_t agent,
                                                         uint16_t /*major*/, uint16_t* minor,
                                                         bool* out) {
  SIM_CALL(hsa_agent_major_extension_supported);
  if (Runtime::get().find(agent) == nullptr) return HSA_STATUS_ERROR_INVALID_AGENT;
  if (minor != nullptr) *minor = extension == HSA_EXTENSION_AMD_LOADER ? 3 : 0;
  return supported(extension, out);
}

SIM_API hsa_status_t hsa_system_get_extension_table(uint16_t extension, uint16_t major,
                                                    uint16_t minor, void* out) {
  SIM_CALL(hsa_system_get_extension_table);
  // The older interface gives no length: version 1.00 of the table has five entries.
  if (minor != 0) return HSA_STATUS_ERROR;
  return table(extension, major, sizeof(hsa_ven_amd_loader_1_00_pfn_t), out);
}

SIM_API hsa_status_t hsa_system_get_major_extension_table(uint16_t extension, uint16_t major,
                                                          size_t length, void* out) {
  SIM_CALL(hsa_system_get_major_extension_table);
  return table(extension, major, length, out);
}
