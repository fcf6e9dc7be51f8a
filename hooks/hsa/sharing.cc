// Memory shared between processes: it is charged to the exporter, and after its death to its
// tenant, as long as a process under a cap has the memory open. The importer is never charged.
#include "hooks/hsa/hook.h"
#include "shim/charge/vmm_calls.h"

namespace fracgpu::hsa {
namespace {

// Returns the units of what is exported with the memory; 0 if that is not this process's.
uint64_t enter_exported(Process& process, const void* pointer) {
  Allocation entry;
  if (note_exported_allocation(process, reinterpret_cast<uint64_t>(pointer), entry) &&
      (entry.key & 1) != 0) {
    // The runtime suballocates nothing more from that block, and returns it when it is empty.
    process.blocks[entry.device_index][entry.pool].discarded();
  }
  return entry.units;
}

// Records what was opened at the address as memory that another process is charged for.
void enter_opened(Process& process, ImportCall& call, void* pointer) {
  hsa_amd_pointer_info_t info{};
  info.size = sizeof info;
  if (real::hsa_amd_pointer_info(pointer, &info, nullptr, nullptr, nullptr) != kSuccess) return;
  call.imported(reinterpret_cast<uint64_t>(pointer),
                device_index_of(process, Handle::agent, info.agentOwner.handle),
                page_units(info.sizeInBytes));
}

}  // namespace

hsa_status_t hsa_amd_ipc_memory_create(void* pointer, size_t size, hsa_amd_ipc_memory_t* handle) {
  Hook hook;
  const hsa_status_t result = real::hsa_amd_ipc_memory_create(pointer, size, handle);
  if (result == kSuccess && hook.active()) {
    enter_exported(hook.process(), pointer);
    note_handle(hook.process(), handle, sizeof *handle);
  }
  return result;
}

hsa_status_t hsa_amd_ipc_memory_attach(const hsa_amd_ipc_memory_t* handle, size_t size,
                                       uint32_t agent_count, const hsa_agent_t* agents,
                                       void** pointer) {
  Hook hook;
  const auto attach = [&] {
    return real::hsa_amd_ipc_memory_attach(handle, size, agent_count, agents, pointer);
  };
  if (!hook.active() || pointer == nullptr) return attach();
  ImportCall call(hook.process(), handle, sizeof *handle);
  const hsa_status_t result = attach();
  if (result == kSuccess) enter_opened(hook.process(), call, *pointer);
  return result;
}

hsa_status_t hsa_amd_ipc_memory_detach(void* pointer) {
  Hook hook;
  const auto detach = [&] { return real::hsa_amd_ipc_memory_detach(pointer); };
  return hook.active()
             ? release_physical(hook.process(), reinterpret_cast<uint64_t>(pointer), detach)
             : detach();
}

hsa_status_t hsa_amd_portable_export_dmabuf(const void* pointer, size_t size, int* dmabuf,
                                            uint64_t* offset) {
  Hook hook;
  const hsa_status_t result = real::hsa_amd_portable_export_dmabuf(pointer, size, dmabuf, offset);
  if (result == kSuccess && hook.active() && dmabuf != nullptr) {
    const uint64_t units = enter_exported(hook.process(), pointer);
    if (units > 0) note_descriptor(hook.process(), *dmabuf, units);
  }
  return result;
}

hsa_status_t hsa_amd_interop_map_buffer(uint32_t agent_count, hsa_agent_t* agents, int interop,
                                        uint32_t flags, size_t* size, void** pointer,
                                        size_t* metadata_size, const void** metadata) {
  Hook hook;
  const auto map = [&] {
    return real::hsa_amd_interop_map_buffer(agent_count, agents, interop, flags, size, pointer,
                                            metadata_size, metadata);
  };
  if (!hook.active() || pointer == nullptr) return map();
  ImportCall call(hook.process(), interop);
  const hsa_status_t result = map();
  if (result == kSuccess) enter_opened(hook.process(), call, *pointer);
  return result;
}

hsa_status_t hsa_amd_interop_unmap_buffer(void* pointer) {
  Hook hook;
  const auto unmap = [&] { return real::hsa_amd_interop_unmap_buffer(pointer); };
  return hook.active()
             ? release_physical(hook.process(), reinterpret_cast<uint64_t>(pointer), unmap)
             : unmap();
}

}  // namespace fracgpu::hsa
