// Symbols of executables. What a kernel needs stands in its descriptor, which is the symbol's
// content (amd_hsa_kernel_code.h; LLVM's AMDGPU usage, "Kernel Descriptor").
#include <cstring>

#include "sim/hsa/code.h"

using sim::Agent;
using sim::answer;
using sim::code;
using sim::Executable;
using sim::Guard;
using sim::Runtime;
using sim::Symbol;

namespace {

struct KernelDescriptor {
  uint32_t group_bytes;
  uint32_t private_bytes;
  uint32_t kernarg_bytes;
};

hsa_executable_symbol_t handle(const Symbol& symbol) {
  return {reinterpret_cast<uint64_t>(&symbol)};
}

const Symbol* find_symbol(uint64_t handle) {
  for (const auto& [number, executable] : code().executables) {
    for (const Symbol& symbol : executable->symbols) {
      if (reinterpret_cast<uint64_t>(&symbol) == handle) return &symbol;
    }
  }
  return nullptr;
}

hsa_status_t by_name(hsa_executable_t given, const char* name, const hsa_agent_t* given_agent,
                     hsa_executable_symbol_t* out) {
  if (name == nullptr || out == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Guard guard(Runtime::get().lock());
  const Executable* executable = code().executable(given.handle);
  if (executable == nullptr) return HSA_STATUS_ERROR_INVALID_EXECUTABLE;
  for (const Symbol& symbol : executable->symbols) {
    if (symbol.name != name) continue;
    if (given_agent != nullptr && sim::handle(*symbol.agent).handle != given_agent->handle)
      continue;
    *out = handle(symbol);
    return HSA_STATUS_SUCCESS;
  }
  return HSA_STATUS_ERROR_INVALID_SYMBOL_NAME;
}

hsa_status_t define(hsa_executable_t given, const hsa_agent_t* given_agent, const char* name,
                    void* address) {
  if (name == nullptr || address == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Guard guard(Runtime::get().lock());
  Executable* executable = code().executable(given.handle);
  if (executable == nullptr) return HSA_STATUS_ERROR_INVALID_EXECUTABLE;
  if (executable->frozen) return HSA_STATUS_ERROR_FROZEN_EXECUTABLE;
  Agent* agent =
      given_agent != nullptr ? Runtime::get().find(*given_agent) : Runtime::get().processor();
  if (agent == nullptr) return HSA_STATUS_ERROR_INVALID_AGENT;
  for (const Symbol& symbol : executable->symbols) {
    if (symbol.agent == agent && symbol.name == name)
      return HSA_STATUS_ERROR_VARIABLE_ALREADY_DEFINED;
  }
  executable->symbols.push_back(
      {agent, false, false, name, reinterpret_cast<uint64_t>(address), 0});
  return HSA_STATUS_SUCCESS;
}

hsa_status_t info(const Symbol& symbol, uint32_t attribute, void* value) {
  KernelDescriptor kernel = {};
  if (symbol.kernel)
    std::memcpy(&kernel, reinterpret_cast<const void*>(symbol.address), sizeof kernel);
  switch (attribute) {
    case HSA_EXECUTABLE_SYMBOL_INFO_TYPE:
      return answer(value, symbol.kernel ? HSA_SYMBOL_KIND_KERNEL : HSA_SYMBOL_KIND_VARIABLE);
    case HSA_EXECUTABLE_SYMBOL_INFO_NAME_LENGTH:
      return answer(value, static_cast<uint32_t>(symbol.name.size()));
    case HSA_EXECUTABLE_SYMBOL_INFO_NAME:
      std::memcpy(value, symbol.name.data(),
                  symbol.name.size());  // no end mark, says the interface
      return HSA_STATUS_SUCCESS;
    case HSA_EXECUTABLE_SYMBOL_INFO_MODULE_NAME_LENGTH:
      return answer<uint32_t>(value, 0);
    case HSA_EXECUTABLE_SYMBOL_INFO_MODULE_NAME:
      return HSA_STATUS_SUCCESS;
    case HSA_EXECUTABLE_SYMBOL_INFO_AGENT:
      return answer(value, sim::handle(*symbol.agent));
    case HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_ADDRESS:
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT:
      return answer<uint64_t>(value, symbol.address);
    case HSA_EXECUTABLE_SYMBOL_INFO_LINKAGE:
      return answer(value, HSA_SYMBOL_LINKAGE_PROGRAM);
    case HSA_EXECUTABLE_SYMBOL_INFO_IS_DEFINITION:
      return answer(value, true);
    case HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_ALLOCATION:
      return answer(value, HSA_VARIABLE_ALLOCATION_AGENT);
    case HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_SEGMENT:
      return answer(value, HSA_VARIABLE_SEGMENT_GLOBAL);
    case HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_ALIGNMENT:
      return answer<uint32_t>(value, 16);
    case HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_SIZE:
      return answer(value, static_cast<uint32_t>(symbol.bytes));
    case HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_IS_CONST:
      return answer(value, symbol.constant);
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_KERNARG_SEGMENT_SIZE:
      return answer(value, kernel.kernarg_bytes);
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_KERNARG_SEGMENT_ALIGNMENT:
      return answer<uint32_t>(value, 16);
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_GROUP_SEGMENT_SIZE:
      return answer(value, kernel.group_bytes);
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_PRIVATE_SEGMENT_SIZE:
      return answer(value, kernel.private_bytes);
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_DYNAMIC_CALLSTACK:
      return answer(value, false);
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_CALL_CONVENTION:
      return answer<uint32_t>(value, 0);
    default:
      sim::unanswered("hsa_executable_symbol_get_info", attribute);
      return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  }
}

// The symbols' list only grows while an executable lives, so it is walked without the lock that a
// callback may want.
template <typename Wanted, typename Call>
hsa_status_t iterate(hsa_executable_t given, Wanted&& wanted, Call&& call) {
  std::vector<hsa_executable_symbol_t> found;
  {
    const Guard guard(Runtime::get().lock());
    const Executable* executable = code().executable(given.handle);
    if (executable == nullptr) return HSA_STATUS_ERROR_INVALID_EXECUTABLE;
    for (const Symbol& symbol : executable->symbols) {
      if (wanted(symbol)) found.push_back(handle(symbol));
    }
  }
  for (const hsa_executable_symbol_t symbol : found) {
    const hsa_status_t result = call(symbol);
    if (result != HSA_STATUS_SUCCESS) return result;
  }
  return HSA_STATUS_SUCCESS;
}

}  // namespace

SIM_API hsa_status_t hsa_executable_get_symbol_by_name(hsa_executable_t executable,
                                                       const char* name, const hsa_agent_t* agent,
                                                       hsa_executable_symbol_t* out) {
  SIM_CALL(hsa_executable_get_symbol_by_name);
  return by_name(executable, name, agent, out);
}

SIM_API hsa_status_t hsa_executable_get_symbol(hsa_executable_t executable, const char* /*module*/,
                                               const char* name, hsa_agent_t agent,
                                               int32_t /*convention*/,
                                               hsa_executable_symbol_t* out) {
  SIM_CALL(hsa_executable_get_symbol);
  return by_name(executable, name, &agent, out);
}

SIM_API hsa_status_t hsa_executable_symbol_get_info(hsa_executable_symbol_t given,
                                                    hsa_executable_symbol_info_t attribute,
                                                    void* value) {
  SIM_CALL(hsa_executable_symbol_get_info);
  if (value == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Guard guard(Runtime::get().lock());
  const Symbol* symbol = find_symbol(given.handle);
  return symbol != nullptr ? info(*symbol, attribute, value)
                           : HSA_STATUS_ERROR_INVALID_EXECUTABLE_SYMBOL;
}

SIM_API hsa_status_t hsa_executable_agent_global_variable_define(hsa_executable_t executable,
                                                                 hsa_agent_t agent,
                                                                 const char* name, void* address) {
  SIM_CALL(hsa_executable_agent_global_variable_define);
  return define(executable, &agent, name, address);
}

SIM_API hsa_status_t hsa_executable_readonly_variable_define(hsa_executable_t executable,
                                                             hsa_agent_t agent, const char* name,
                                                             void* address) {
  SIM_CALL(hsa_executable_readonly_variable_define);
  return define(executable, &agent, name, address);
}

SIM_API hsa_status_t hsa_executable_global_variable_define(hsa_executable_t executable,
                                                           const char* name, void* address) {
  SIM_CALL(hsa_executable_global_variable_define);
  return define(executable, nullptr, name, address);
}

SIM_API hsa_status_t hsa_executable_iterate_symbols(
    hsa_executable_t executable,
    hsa_status_t (*callback)(hsa_executable_t, hsa_executable_symbol_t, void*), void* data) {
  SIM_CALL(hsa_executable_iterate_symbols);
  if (callback == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  return iterate(
      executable, [](const Symbol&) { return true; },
      [&](hsa_executable_symbol_t symbol) { return callback(executable, symbol, data); });
}

SIM_API hsa_status_t hsa_executable_iterate_agent_symbols(
    hsa_executable_t executable, hsa_agent_t agent,
    hsa_status_t (*callback)(hsa_executable_t, hsa_agent_t, hsa_executable_symbol_t, void*),
    void* data) {
  SIM_CALL(hsa_executable_iterate_agent_symbols);
  if (callback == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  return iterate(
      executable,
      [&](const Symbol& symbol) { return sim::handle(*symbol.agent).handle == agent.handle; },
      [&](hsa_executable_symbol_t symbol) { return callback(executable, agent, symbol, data); });
}

SIM_API hsa_status_t hsa_executable_iterate_program_symbols(
    hsa_executable_t executable,
    hsa_status_t (*callback)(hsa_executable_t, hsa_executable_symbol_t, void*), void* data) {
  SIM_CALL(hsa_executable_iterate_program_symbols);
  if (callback == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  return iterate(
      executable, [](const Symbol& symbol) { return !symbol.agent->gpu(); },
      [&](hsa_executable_symbol_t symbol) { return callback(executable, symbol, data); });
}
