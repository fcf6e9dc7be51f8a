// Loading: readers, executables and the device memory they take.
#include "sim/hsa/code.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "sim/hsa/memory.h"
#include "sim/hsa/queue.h"

using sim::Agent;
using sim::code;
using sim::Executable;
using sim::Guard;
using sim::LoadedCode;
using sim::Reader;
using sim::Runtime;

namespace sim {

CodeTable& code() {
  static CodeTable* const table = new CodeTable;
  return *table;
}

Executable* CodeTable::executable(uint64_t handle) {
  const auto found = executables.find(handle);
  return found == executables.end() ? nullptr : found->second.get();
}

LoadedCode* CodeTable::around(uint64_t address) {
  for (auto& [handle, executable] : executables) {
    for (LoadedCode& loaded : executable->loaded) {
      if (address - loaded.base < loaded.bytes) return &loaded;
    }
  }
  return nullptr;
}

hsa_status_t CodeTable::load(Executable* executable, Agent* agent, const Reader& reader,
                             LoadedCode** out) {
  CodeObject object;
  if (!parse_code_object(reader.data, reader.bytes, &object))
    return HSA_STATUS_ERROR_INVALID_CODE_OBJECT;
  LoadedCode loaded;
  loaded.executable = executable;
  loaded.agent = agent;
  loaded.storage = reader.data;
  loaded.storage_bytes = reader.bytes;
  loaded.lowest = object.lowest / kGrain * kGrain;
  loaded.bytes = round_up(object.end, kGrain);
  if (!Runtime::get().take_overhead(*agent, loaded.bytes)) return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  loaded.base = map_addresses(loaded.bytes, kGrain, true);
  if (loaded.base == 0) {
    Runtime::get().return_overhead(*agent, loaded.bytes);
    return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  }
  const uint64_t shift = loaded.base - loaded.lowest;
  for (const CodeObject::Segment& segment : object.segments) {
    std::memcpy(reinterpret_cast<void*>(segment.address + shift), reader.data + segment.offset,
                segment.file_bytes);
  }
  for (const CodeObject::Symbol& symbol : object.symbols) {
    // A kernel is found by its descriptor.
    const bool kernel =
        symbol.name.size() > 3 && symbol.name.compare(symbol.name.size() - 3, 3, ".kd") == 0;
    executable->symbols.push_back(
        {agent, kernel, false, symbol.name, symbol.address + shift, symbol.bytes});
  }
  Allocation allocation;
  allocation.type = Allocation::Type::kCode;
  allocation.base = loaded.base;
  allocation.bytes = loaded.bytes;
  allocation.owner = agent;
  allocation.accessible.set(agent->index);
  memory().add(allocation);
  executable->loaded.push_back(loaded);
  *out = &executable->loaded.back();
  return HSA_STATUS_SUCCESS;
}

void CodeTable::unload(Executable* executable) {
  for (LoadedCode& loaded : executable->loaded) {
    memory().remove(memory().starting_at(loaded.base));
    unmap_addresses(loaded.base, loaded.bytes);
    Runtime::get().return_overhead(*loaded.agent, loaded.bytes);
  }
  executables.erase(reinterpret_cast<uint64_t>(executable));
}

void unload_all_code() {
  while (!code().executables.empty()) code().unload(code().executables.begin()->second.get());
  code().readers.clear();
}

}  // namespace sim

namespace {

hsa_status_t read_file(int file, size_t offset, size_t bytes, hsa_code_object_reader_t* out) {
  if (out == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  struct stat about {};
  if (fstat(file, &about) != 0 || offset > static_cast<size_t>(about.st_size))
    return HSA_STATUS_ERROR_INVALID_FILE;
  if (bytes == 0) bytes = static_cast<size_t>(about.st_size) - offset;
  auto reader = std::make_unique<Reader>();
  reader->own.resize(bytes);
  if (pread(file, reader->own.data(), bytes, static_cast<off_t>(offset)) !=
      static_cast<ssize_t>(bytes))
    return HSA_STATUS_ERROR_INVALID_FILE;
  reader->data = reader->own.data();
  reader->bytes = bytes;
  const Guard guard(Runtime::get().lock());
  out->handle = reinterpret_cast<uint64_t>(reader.get());
  code().readers[out->handle] = std::move(reader);
  return HSA_STATUS_SUCCESS;
}

hsa_status_t create(hsa_executable_t* out) {
  if (out == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Guard guard(Runtime::get().lock());
  auto executable = std::make_unique<Executable>();
  out->handle = reinterpret_cast<uint64_t>(executable.get());
  code().executables[out->handle] = std::move(executable);
  return HSA_STATUS_SUCCESS;
}

}  // namespace

SIM_API hsa_status_t hsa_code_object_reader_create_from_memory(const void* data, size_t bytes,
                                                               hsa_code_object_reader_t* out) {
  SIM_CALL(hsa_code_object_reader_create_from_memory);
  if (data == nullptr || bytes == 0 || out == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Guard guard(Runtime::get().lock());
  auto reader = std::make_unique<Reader>();
  reader->data = static_cast<const uint8_t*>(data);
  reader->bytes = bytes;
  out->handle = reinterpret_cast<uint64_t>(reader.get());
  code().readers[out->handle] = std::move(reader);
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_code_object_reader_create_from_file(hsa_file_t file,
                                                             hsa_code_object_reader_t* out) {
  SIM_CALL(hsa_code_object_reader_create_from_file);
  return read_file(file, 0, 0, out);
}

// Reached through the loader's table.
hsa_status_t sim_reader_create_from_part(hsa_file_t file, size_t offset, size_t bytes,
                                         hsa_code_object_reader_t* out) {
  SIM_CALL(hsa_ven_amd_loader_code_object_reader_create_from_file_with_offset_size);
  return bytes == 0 ? HSA_STATUS_ERROR_INVALID_ARGUMENT : read_file(file, offset, bytes, out);
}

SIM_API hsa_status_t hsa_code_object_reader_destroy(hsa_code_object_reader_t reader) {
  SIM_CALL(hsa_code_object_reader_destroy);
  const Guard guard(Runtime::get().lock());
  return code().readers.erase(reader.handle) != 0 ? HSA_STATUS_SUCCESS
                                                  : HSA_STATUS_ERROR_INVALID_CODE_OBJECT_READER;
}

SIM_API hsa_status_t hsa_executable_create(hsa_profile_t, hsa_executable_state_t, const char*,
                                           hsa_executable_t* out) {
  SIM_CALL(hsa_executable_create);
  return create(out);
}

SIM_API hsa_status_t hsa_executable_create_alt(hsa_profile_t, hsa_default_float_rounding_mode_t,
                                               const char*, hsa_executable_t* out) {
  SIM_CALL(hsa_executable_create_alt);
  return create(out);
}

SIM_API hsa_status_t hsa_executable_destroy(hsa_executable_t given) {
  SIM_CALL(hsa_executable_destroy);
  const Guard guard(Runtime::get().lock());
  Executable* executable = code().executable(given.handle);
  if (executable == nullptr) return HSA_STATUS_ERROR_INVALID_EXECUTABLE;
  code().unload(executable);
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_executable_load_agent_code_object(hsa_executable_t given,
                                                           hsa_agent_t given_agent,
                                                           hsa_code_object_reader_t given_reader,
                                                           const char* /*options*/,
                                                           hsa_loaded_code_object_t* out) {
  SIM_CALL(hsa_executable_load_agent_code_object);
  const Guard guard(Runtime::get().lock());
  Executable* executable = code().executable(given.handle);
  if (executable == nullptr) return HSA_STATUS_ERROR_INVALID_EXECUTABLE;
  if (executable->frozen) return HSA_STATUS_ERROR_FROZEN_EXECUTABLE;
  Agent* agent = Runtime::get().find(given_agent);
  if (agent == nullptr || !agent->gpu()) return HSA_STATUS_ERROR_INVALID_AGENT;
  const auto reader = code().readers.find(given_reader.handle);
  if (reader == code().readers.end()) return HSA_STATUS_ERROR_INVALID_CODE_OBJECT_READER;
  LoadedCode* loaded = nullptr;
  const hsa_status_t result = code().load(executable, agent, *reader->second, &loaded);
  if (result == HSA_STATUS_SUCCESS && out != nullptr)
    out->handle = reinterpret_cast<uint64_t>(loaded);
  return result;
}

SIM_API hsa_status_t hsa_executable_freeze(hsa_executable_t given, const char* /*options*/) {
  SIM_CALL(hsa_executable_freeze);
  std::vector<const Agent*> devices;
  {
    const Guard guard(Runtime::get().lock());
    Executable* executable = code().executable(given.handle);
    if (executable == nullptr) return HSA_STATUS_ERROR_INVALID_EXECUTABLE;
    if (executable->frozen) return HSA_STATUS_ERROR_FROZEN_EXECUTABLE;
    for (const sim::LoadedCode& loaded : executable->loaded) devices.push_back(loaded.agent);
    executable->frozen = true;
  }
  for (const Agent* const device : devices) {
    if (!sim::ensure_own_queue(*device)) return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  }
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_executable_validate(hsa_executable_t given, uint32_t* result) {
  SIM_CALL(hsa_executable_validate);
  if (result == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Guard guard(Runtime::get().lock());
  *result = 0;
  return code().executable(given.handle) != nullptr ? HSA_STATUS_SUCCESS
                                                    : HSA_STATUS_ERROR_INVALID_EXECUTABLE;
}

SIM_API hsa_status_t hsa_executable_validate_alt(hsa_executable_t given, const char* /*options*/,
                                                 uint32_t* result) {
  SIM_CALL(hsa_executable_validate_alt);
  return hsa_executable_validate(given, result);
}

SIM_API hsa_status_t hsa_executable_get_info(hsa_executable_t given,
                                             hsa_executable_info_t attribute, void* value) {
  SIM_CALL(hsa_executable_get_info);
  if (value == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Guard guard(Runtime::get().lock());
  const Executable* executable = code().executable(given.handle);
  if (executable == nullptr) return HSA_STATUS_ERROR_INVALID_EXECUTABLE;
  uint32_t answer = HSA_PROFILE_BASE;
  if (attribute == HSA_EXECUTABLE_INFO_STATE)
    answer = executable->frozen ? HSA_EXECUTABLE_STATE_FROZEN : HSA_EXECUTABLE_STATE_UNFROZEN;
  if (attribute == HSA_EXECUTABLE_INFO_DEFAULT_FLOAT_ROUNDING_MODE)
    answer = HSA_DEFAULT_FLOAT_ROUNDING_MODE_NEAR;
  std::memcpy(value, &answer, sizeof answer);
  return HSA_STATUS_SUCCESS;
}
