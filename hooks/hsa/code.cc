// Code objects. A reader shows how much device memory its code object will take, so room is
// reserved before it is loaded. The kernel's count corrects the charge afterwards.
#include "hooks/hsa/code_object.h"
#include "hooks/hsa/kernel.h"
#include "hooks/hsa/overhead_call.h"

namespace fracgpu::hsa {
namespace {

// Units reserved for the first code object of a process whose size is not known. For later ones,
// the largest size that such an object took is reserved. An estimate: the code objects that HIP
// itself loads take some hundred KiB.
constexpr uint64_t kEstimatedCode = (2u << 20) / layout::kUnit;

const void* pointer(hsa_executable_t executable) {
  return reinterpret_cast<const void*>(executable.handle);
}

// Calls `create()`, which makes a reader of the image that `image()` returns.
template <typename Create, typename Image>
hsa_status_t create_reader(hsa_code_object_reader_t* reader, Create create, Image image) {
  Hook hook;
  const hsa_status_t result = create();
  if (result == kSuccess && hook.active() && reader != nullptr) {
    hook.process().code_sizes.enter(reader->handle, page_units(code_object_bytes(image())));
  }
  return result;
}

// If there seems to be no room for `units`, makes the runtime give back unused memory.
void make_room(Process& process, int device_index, uint64_t units) {
  const bool fits = process.ledger.held(device_index) + units <= process.ledger.cap(device_index);
  if (!fits && trim_runtime(process.ledger.map()->devices[device_index].key))
    settle_overhead(process, device_index);
}

// Calls `load()`, which loads the code of `reader`; 0 if the size is not known. A single code
// object cannot be unloaded: the caller destroys the executable if this fails.
template <typename Load>
hsa_status_t load_code(const char* api, hsa_executable_t executable, hsa_agent_t agent,
                       uint64_t reader, Load load) {
  const auto reserve = [&](Process& process, int device_index, const char* name) {
    const uint64_t units = process.code_sizes.find(reader);
    make_room(process, device_index, units != 0 ? units : kEstimatedCode);
    return units != 0
               ? OverheadReservation(process, device_index, units, name,
                                     OverheadReservation::Kind::code)
               : OverheadReservation::for_module(process, device_index, name, kEstimatedCode);
  };
  return take_overhead(
      api, agent, reserve, load, [] {}, pointer(executable));
}

}  // namespace

hsa_status_t hsa_code_object_reader_create_from_memory(const void* code_object, size_t size,
                                                       hsa_code_object_reader_t* reader) {
  return create_reader(
      reader,
      [&] { return real::hsa_code_object_reader_create_from_memory(code_object, size, reader); },
      [&] { return ByteSource::in_memory(code_object, size); });
}

hsa_status_t hsa_code_object_reader_create_from_file(int file, hsa_code_object_reader_t* reader) {
  return create_reader(
      reader, [&] { return real::hsa_code_object_reader_create_from_file(file, reader); },
      [&] { return ByteSource::in_file(file); });
}

hsa_status_t hsa_code_object_reader_destroy(hsa_code_object_reader_t reader) {
  Hook hook;
  // This must precede the call: the runtime may give the handle to another reader at once.
  if (hook.active()) hook.process().code_sizes.forget(reader.handle);
  return real::hsa_code_object_reader_destroy(reader);
}

hsa_status_t hsa_executable_load_agent_code_object(hsa_executable_t executable, hsa_agent_t agent,
                                                   hsa_code_object_reader_t reader,
                                                   const char* options,
                                                   hsa_loaded_code_object_t* loaded) {
  return load_code("hsa_executable_load_agent_code_object", executable, agent, reader.handle, [&] {
    return real::hsa_executable_load_agent_code_object(executable, agent, reader, options, loaded);
  });
}

hsa_status_t hsa_executable_load_code_object(hsa_executable_t executable, hsa_agent_t agent,
                                             hsa_code_object_t code_object, const char* options) {
  return load_code("hsa_executable_load_code_object", executable, agent, 0, [&] {
    return real::hsa_executable_load_code_object(executable, agent, code_object, options);
  });
}

hsa_status_t hsa_executable_destroy(hsa_executable_t executable) {
  Hook hook;
  if (!hook.active()) return real::hsa_executable_destroy(executable);
  ModuleRelease release(hook.process(), pointer(executable));
  const hsa_status_t result = real::hsa_executable_destroy(executable);
  if (result != kSuccess) return result;
  release.done(ModuleRelease::kNoDevice);
  settle_all(hook.process());
  return result;
}

}  // namespace fracgpu::hsa
