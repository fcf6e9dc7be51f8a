// Memory shared between processes is charged to the exporter. After the exporter's death it stays
// charged to its tenant as long as a process under a cap has the memory open. The importer is never
// charged.
//
// Runtimes since ROCm 6.4 may hand out IPC handles that stand for a descriptor, which the importer
// requests from the exporter. The newest ones do so unless HSA_ENABLE_IPC_MODE_LEGACY=1 is set.
// Such a handle, like an exported descriptor, lets the runtime's other allocations use the same
// block. A handle of the kernel, which is the older kind, takes the block away from them, unless
// the memory fills it.
#include <string.h>
#include <unistd.h>

#include "hooks/hsa/hook.h"
#include "shim/charge/vmm_calls.h"

namespace fracgpu::hsa {
namespace {

// Whether other allocations may still use the block that exported memory lies in.
enum class Block { shared_on, alone };

// Returns the entry that is exported with the memory; an empty one if it is not this process's.
Allocation enter_exported(Process& process, const void* pointer, Block block) {
  Allocation entry;
  note_exported_allocation(process, reinterpret_cast<uint64_t>(pointer), entry);
  hsa_amd_pointer_info_t info{};
  info.size = sizeof info;
  if (entry.key == 0 &&
      real::hsa_amd_pointer_info(pointer, &info, nullptr, nullptr, nullptr) == kSuccess) {
    // The pointer is inside an allocation.
    note_exported_allocation(process, reinterpret_cast<uint64_t>(info.agentBaseAddress), entry);
  }
  if ((entry.key & 1) != 0 && block == Block::alone && process.allocations.mark_apart(entry.key))
    process.blocks[entry.device_index][entry.pool].set_apart();
  return entry;
}

// A handle that stands for a descriptor begins with the address and the exporter's PID, in the
// exporter's own PID namespace. A handle of the kernel begins with random numbers.
bool stands_for_descriptor(const hsa_amd_ipc_memory_t& handle, const void* pointer) {
  const uint32_t pid = static_cast<uint32_t>(getpid());
  return memcmp(&handle.handle[0], &pointer, sizeof pointer) == 0 &&
         memcmp(&handle.handle[2], &pid, sizeof pid) == 0;
}

// Records the memory opened at the address as memory that is charged to another process.
void enter_opened(Process& process, ImportCall& call, void* pointer) {
  hsa_amd_pointer_info_t info{};
  info.size = sizeof info;
  if (real::hsa_amd_pointer_info(pointer, &info, nullptr, nullptr, nullptr) != kSuccess) return;
  call.imported(reinterpret_cast<uint64_t>(pointer),
                device_index_of(process, Handle::agent, info.agentOwner.handle),
                page_units(info.sizeInBytes));
}

// Calls `make()`, which puts the memory at the address into a descriptor.
template <typename Make>
hsa_status_t export_descriptor(const void* pointer, const int* dmabuf, Make make) {
  Hook hook;
  const hsa_status_t result = make();
  if (result == kSuccess && hook.active() && dmabuf != nullptr) {
    const Allocation entry = enter_exported(hook.process(), pointer, Block::shared_on);
    if (entry.units > 0) note_descriptor(hook.process(), *dmabuf, entry.units, token_of(entry));
  }
  return result;
}

// Calls `map()`, which opens the memory of a descriptor at `*pointer`.
template <typename Map>
hsa_status_t map_descriptor(int descriptor, void** pointer, Map map) {
  Hook hook;
  if (!hook.active() || pointer == nullptr) return map();
  ImportCall call(hook.process(), descriptor);
  const hsa_status_t result = map();
  if (result == kSuccess) enter_opened(hook.process(), call, *pointer);
  return result;
}

}  // namespace

hsa_status_t hsa_amd_ipc_memory_create(void* pointer, size_t size, hsa_amd_ipc_memory_t* handle) {
  Hook hook;
  const hsa_status_t result = real::hsa_amd_ipc_memory_create(pointer, size, handle);
  if (result == kSuccess && hook.active()) {
    const bool is_shared_on = fills_block(size) || stands_for_descriptor(*handle, pointer);
    const Allocation entry =
        enter_exported(hook.process(), pointer, is_shared_on ? Block::shared_on : Block::alone);
    note_handle(hook.process(), handle, sizeof *handle, token_of(entry));
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
  return export_descriptor(pointer, dmabuf, [&] {
    return real::hsa_amd_portable_export_dmabuf(pointer, size, dmabuf, offset);
  });
}

hsa_status_t hsa_amd_portable_export_dmabuf_v2(const void* pointer, size_t size, int* dmabuf,
                                               uint64_t* offset, uint64_t flags) {
  return export_descriptor(pointer, dmabuf, [&] {
    return real::hsa_amd_portable_export_dmabuf_v2(pointer, size, dmabuf, offset, flags);
  });
}

hsa_status_t hsa_amd_interop_map_buffer(uint32_t agent_count, hsa_agent_t* agents, int interop,
                                        uint32_t flags, size_t* size, void** pointer,
                                        size_t* metadata_size, const void** metadata) {
  return map_descriptor(interop, pointer, [&] {
    return real::hsa_amd_interop_map_buffer(agent_count, agents, interop, flags, size, pointer,
                                            metadata_size, metadata);
  });
}

hsa_status_t hsa_amd_interop_map_buffer_with_size(uint32_t agent_count, hsa_agent_t* agents,
                                                  int interop, uint32_t flags, size_t size_hint,
                                                  size_t* size, void** pointer,
                                                  size_t* metadata_size, const void** metadata) {
  return map_descriptor(interop, pointer, [&] {
    return real::hsa_amd_interop_map_buffer_with_size(
        agent_count, agents, interop, flags, size_hint, size, pointer, metadata_size, metadata);
  });
}

hsa_status_t hsa_amd_interop_unmap_buffer(void* pointer) {
  Hook hook;
  const auto unmap = [&] { return real::hsa_amd_interop_unmap_buffer(pointer); };
  return hook.active()
             ? release_physical(hook.process(), reinterpret_cast<uint64_t>(pointer), unmap)
             : unmap();
}

}  // namespace fracgpu::hsa
