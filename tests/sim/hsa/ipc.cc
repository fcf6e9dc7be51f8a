// Sharing memory with other processes: by IPC handle and by descriptor (dmabuf, "interop"). The
// exporter pays and an importer pays nothing; the memory stays, at the exporter's tenant's cost,
// until the last holder has let go. A handle names the physical memory, which for a small request
// is the whole block that its fragment lies in, and the place inside it. As in the real runtime an
// IPC export takes that block out of use for other fragments, a dmabuf export does not.
//
// With FRACGPU_SIM_HSA_IPC=descriptor the runtime is one whose IPC handles stand for a descriptor,
// as the newest one's do by default; HSA_ENABLE_IPC_MODE_LEGACY=1 and =0 choose the older and the
// newer kind on each. Such a handle is the address, the PID and the node: exported again, it is the
// same, and a process of another PID namespace may have the same one.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <set>
#include <string_view>

#include "sim/hsa/ipc_server.h"
#include "sim/hsa/vmem_table.h"

using sim::Account;
using sim::Agent;
using sim::Allocation;
using sim::Chunk;
using sim::Guard;
using sim::Physical;
using sim::Runtime;

namespace {

struct Ticket {
  uint32_t magic;
  int32_t object;
  uint64_t serial;
  uint64_t offset;
  uint64_t bytes;
};
static_assert(sizeof(Ticket) == sizeof(hsa_amd_ipc_memory_t));
constexpr uint32_t kTicketMagic = 0x746b7470;

// A handle of the newer kind.
struct Address {
  uint32_t low, high;
  uint32_t pid;
  uint32_t is_processor;
  uint32_t node;
  uint32_t unused;
  uint32_t page;  // with the top bit: the page of the block that the memory begins at
  uint32_t unused_too;

  uint64_t address() const { return uint64_t{high} << 32 | low; }
  uint64_t offset() const { return (page & ~kInBlock) * sim::kGrain; }
  static constexpr uint32_t kInBlock = 1u << 31;
};
static_assert(sizeof(Address) == sizeof(hsa_amd_ipc_memory_t));

bool handles_stand_for_descriptors() {
  if (const char* legacy = std::getenv("HSA_ENABLE_IPC_MODE_LEGACY")) return *legacy == '0';
  const char* kind = std::getenv("FRACGPU_SIM_HSA_IPC");
  return kind != nullptr && std::string_view(kind) == "descriptor";
}

std::set<uint64_t>& exported() {  // addresses; the runtime's lock is held
  static auto* const set = new std::set<uint64_t>;
  return *set;
}
constexpr uint32_t kWhere[2] = {};

Agent* agent_of(int device) {
  for (const auto& agent : Runtime::get().agents()) {
    if (agent->gpu() && agent->device == device) return agent.get();
  }
  return nullptr;
}

// Addresses for imported memory, which this process holds from now on.
hsa_status_t attach(const Physical& memory, Allocation::Type type, uint64_t offset, uint64_t bytes,
                    void** out) {
  Physical held = memory;
  Allocation allocation;
  allocation.type = type;
  allocation.owner = agent_of(held.device);
  allocation.chunk.bytes = held.bytes;
  if (allocation.owner != nullptr && offset <= held.bytes && bytes <= held.bytes - offset)
    allocation.chunk.base = sim::map_addresses(held.bytes, sim::kGrain, true);
  if (allocation.chunk.base == 0) {
    Runtime::get().account().drop(&held);
    return allocation.owner == nullptr ? HSA_STATUS_ERROR_INVALID_ARGUMENT
                                       : HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  }
  allocation.chunk.physical = held;
  allocation.base = allocation.chunk.base + offset;
  allocation.bytes = bytes;
  allocation.accessible.set(allocation.owner->index);
  sim::memory().add(allocation);
  *out = reinterpret_cast<void*>(allocation.base);
  return HSA_STATUS_SUCCESS;
}

hsa_status_t detach(void* address, Allocation::Type type) {
  const Guard guard(Runtime::get().lock());
  Allocation* known = sim::memory().starting_at(reinterpret_cast<uint64_t>(address));
  if (known == nullptr || known->type != type) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  sim::memory().remove(known);
  return HSA_STATUS_SUCCESS;
}

hsa_status_t export_descriptor(const void* given, size_t bytes, int* file, uint64_t* offset) {
  if (given == nullptr || bytes == 0 || file == nullptr || offset == nullptr)
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const auto address = reinterpret_cast<uint64_t>(given);
  const Guard guard(Runtime::get().lock());
  Physical* memory = nullptr;
  uint64_t base = 0;
  if (Allocation* known = sim::memory().around(address)) {
    if (bytes > known->base + known->bytes - address) return HSA_STATUS_ERROR_INVALID_ALLOCATION;
    if (Chunk* chunk = sim::memory().chunk_of(known, false)) {
      memory = &chunk->physical;
      base = chunk->base;
    }
  } else if (sim::Vmem::Mapping* mapping = sim::vmem().around(address, &base)) {
    memory = &sim::vmem().mapped(mapping->handle)->physical;
  }
  if (memory == nullptr) return HSA_STATUS_ERROR_INVALID_ALLOCATION;
  if (memory->device < 0) return HSA_STATUS_ERROR_INVALID_AGENT;
  Account& account = Runtime::get().account();
  const int fd =
      account.share(memory, sim::ObjectKind::kMemory, kWhere) ? account.descriptor(*memory) : -1;
  if (fd < 0) return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  *file = fd;
  *offset = address - base;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t map_descriptor(int file, uint32_t flags, size_t* bytes, void** out,
                            size_t* metadata_bytes, const void** metadata) {
  if (flags != 0 || bytes == nullptr || out == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Guard guard(Runtime::get().lock());
  Physical memory;
  if (!Runtime::get().account().import(file, sim::ObjectKind::kMemory, &memory))
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const hsa_status_t result = attach(memory, Allocation::Type::kGraphics, 0, memory.bytes, out);
  if (result != HSA_STATUS_SUCCESS) return result;
  *bytes = memory.bytes;
  if (metadata_bytes != nullptr) *metadata_bytes = 0;
  if (metadata != nullptr) *metadata = nullptr;
  return HSA_STATUS_SUCCESS;
}

int exported_descriptor(uint64_t address) {
  uint64_t offset = 0;
  int file = -1;
  {
    const Guard guard(Runtime::get().lock());
    const Allocation* known = sim::memory().starting_at(address);
    if (known == nullptr || exported().count(address) == 0) return -1;
  }
  export_descriptor(reinterpret_cast<const void*>(address), 1, &file, &offset);
  return file;
}

// The lock is held. What is exported stays the runtime's to take parts of for others.
hsa_status_t create_address(const Allocation& known, const Chunk& chunk,
                            hsa_amd_ipc_memory_t* out) {
  if (!sim::serve_descriptors(exported_descriptor)) return HSA_STATUS_ERROR;
  exported().insert(known.base);
  Address handle{};
  handle.low = static_cast<uint32_t>(known.base);
  handle.high = static_cast<uint32_t>(known.base >> 32);
  handle.pid = static_cast<uint32_t>(getpid());
  handle.node = known.owner->node;
  if (known.fragment)
    handle.page =
        Address::kInBlock | static_cast<uint32_t>((known.base - chunk.base) / sim::kGrain);
  std::memcpy(out, &handle, sizeof handle);
  return HSA_STATUS_SUCCESS;
}

hsa_status_t attach_address(const Address& handle, size_t bytes, void** out) {
  const int file = sim::descriptor_from(static_cast<pid_t>(handle.pid), handle.address());
  if (file < 0) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Guard guard(Runtime::get().lock());
  Physical memory;
  const bool imported = Runtime::get().account().import(file, sim::ObjectKind::kMemory, &memory);
  close(file);
  return imported ? attach(memory, Allocation::Type::kIpc, handle.offset(), bytes, out)
                  : HSA_STATUS_ERROR_INVALID_ARGUMENT;
}

}  // namespace

SIM_API hsa_status_t hsa_amd_ipc_memory_create(void* address, size_t bytes,
                                               hsa_amd_ipc_memory_t* out) {
  SIM_CALL(hsa_amd_ipc_memory_create);
  if (address == nullptr || bytes == 0 || out == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Guard guard(Runtime::get().lock());
  Allocation* known = sim::memory().starting_at(reinterpret_cast<uint64_t>(address));
  // Only a whole allocation.
  if (known == nullptr || known->type != Allocation::Type::kPool || known->bytes != bytes ||
      !known->owner->gpu())
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const bool descriptors = handles_stand_for_descriptors();
  Chunk* chunk = sim::memory().chunk_of(known, !descriptors);
  if (!Runtime::get().account().share(&chunk->physical, sim::ObjectKind::kMemory, kWhere))
    return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  if (descriptors) return create_address(*known, *chunk, out);
  const Ticket ticket{kTicketMagic, chunk->physical.object, chunk->physical.serial,
                      known->base - chunk->base, known->bytes};
  std::memcpy(out, &ticket, sizeof ticket);
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_amd_ipc_memory_attach(const hsa_amd_ipc_memory_t* handle, size_t bytes,
                                               uint32_t /*count*/, const hsa_agent_t* /*agents*/,
                                               void** out) {
  SIM_CALL(hsa_amd_ipc_memory_attach);
  if (handle == nullptr || out == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  Ticket ticket;
  std::memcpy(&ticket, handle, sizeof ticket);
  if (handles_stand_for_descriptors()) {
    Address address;
    std::memcpy(&address, handle, sizeof address);
    return attach_address(address, bytes, out);
  }
  if (ticket.magic != kTicketMagic || ticket.bytes != bytes)
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Guard guard(Runtime::get().lock());
  Physical memory;
  if (!Runtime::get().account().import(ticket.object, ticket.serial, &memory))
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  return attach(memory, Allocation::Type::kIpc, ticket.offset, ticket.bytes, out);
}

SIM_API hsa_status_t hsa_amd_ipc_memory_detach(void* address) {
  SIM_CALL(hsa_amd_ipc_memory_detach);
  return detach(address, Allocation::Type::kIpc);
}

SIM_API hsa_status_t hsa_amd_portable_export_dmabuf(const void* address, size_t bytes, int* file,
                                                    uint64_t* offset) {
  SIM_CALL(hsa_amd_portable_export_dmabuf);
  return export_descriptor(address, bytes, file, offset);
}

SIM_API hsa_status_t hsa_amd_portable_export_dmabuf_v2(const void* address, size_t bytes, int* file,
                                                       uint64_t* offset, uint64_t /*flags*/) {
  SIM_CALL(hsa_amd_portable_export_dmabuf_v2);
  return export_descriptor(address, bytes, file, offset);
}

SIM_API hsa_status_t hsa_amd_portable_close_dmabuf(int file) {
  SIM_CALL(hsa_amd_portable_close_dmabuf);
  return close(file) == 0 ? HSA_STATUS_SUCCESS : HSA_STATUS_ERROR_RESOURCE_FREE;
}

SIM_API hsa_status_t hsa_amd_interop_map_buffer(uint32_t /*count*/, hsa_agent_t* /*agents*/,
                                                int file, uint32_t flags, size_t* bytes, void** out,
                                                size_t* metadata_bytes, const void** metadata) {
  SIM_CALL(hsa_amd_interop_map_buffer);
  return map_descriptor(file, flags, bytes, out, metadata_bytes, metadata);
}

SIM_API hsa_status_t hsa_amd_interop_map_buffer_with_size(
    uint32_t /*count*/, hsa_agent_t* /*agents*/, int file, uint32_t flags, size_t /*size_hint*/,
    size_t* bytes, void** out, size_t* metadata_bytes, const void** metadata) {
  SIM_CALL(hsa_amd_interop_map_buffer_with_size);
  return map_descriptor(file, flags, bytes, out, metadata_bytes, metadata);
}

SIM_API hsa_status_t hsa_amd_interop_unmap_buffer(void* address) {
  SIM_CALL(hsa_amd_interop_unmap_buffer);
  return detach(address, Allocation::Type::kGraphics);
}
