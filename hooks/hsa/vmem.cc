// Virtual memory management: memory is charged when a handle is made, and given back when the last
// reference and the last mapping of it are gone. ROCm has it since 6.1.
#include "hooks/hsa/hook.h"
#include "shim/charge/overhead.h"
#include "shim/charge/reservation.h"
#include "shim/charge/upper_call.h"
#include "shim/charge/vmm_calls.h"

namespace fracgpu::hsa {
namespace {

// Records the memory that a successful import made as another process's, and returns `result`.
hsa_status_t enter_imported(Process& process, ImportCall& call, hsa_status_t result,
                            const hsa_amd_vmem_alloc_handle_t* handle) {
  hsa_amd_memory_pool_t pool{};
  int type = 0;
  if (result == kSuccess &&
      real::hsa_amd_vmem_get_alloc_properties_from_handle(*handle, &pool, &type) == kSuccess) {
    call.imported(handle->handle, device_index_of(process, Handle::pool, pool.handle), 0);
  }
  return result;
}

}  // namespace

hsa_status_t hsa_amd_vmem_handle_create(hsa_amd_memory_pool_t pool, size_t size, int type,
                                        uint64_t flags, hsa_amd_vmem_alloc_handle_t* handle) {
  Hook hook;
  const auto create = [&] {
    return real::hsa_amd_vmem_handle_create(pool, size, type, flags, handle);
  };
  if (!hook.active() || handle == nullptr || size == 0) return create();
  Process& process = hook.process();
  const char* const api = "hsa_amd_vmem_handle_create";
  Context context;
  switch (place_of(process, api, Handle::pool, pool.handle, context)) {
    case Place::elsewhere:
      return create();
    case Place::refused:
      return kOutOfResources;
    case Place::capped:
      break;
  }
  const uint64_t units = page_units(size);
  Reservation reservation(process, context.device_index, units, {UpperCall::name_or(api), size},
                          UpperCall::take(context.device_index, units));
  if (!reservation) return kOutOfResources;
  const hsa_amd_vmem_alloc_handle_t before = *handle;
  return make_physical(
      process, reservation, units, kOutOfResources, create, [&] { return handle->handle; },
      [&] {
        real::hsa_amd_vmem_handle_release(*handle);
        *handle = before;
      });
}

hsa_status_t hsa_amd_vmem_handle_release(hsa_amd_vmem_alloc_handle_t handle) {
  Hook hook;
  const auto release = [&] { return real::hsa_amd_vmem_handle_release(handle); };
  return hook.active() ? release_physical(hook.process(), handle.handle, release) : release();
}

hsa_status_t hsa_amd_vmem_map(void* address, size_t size, size_t offset,
                              hsa_amd_vmem_alloc_handle_t handle, uint64_t flags) {
  Hook hook;
  const auto map = [&] { return real::hsa_amd_vmem_map(address, size, offset, handle, flags); };
  return hook.active() ? map_physical(hook.process(), reinterpret_cast<uint64_t>(address), size,
                                      handle.handle, map)
                       : map();
}

hsa_status_t hsa_amd_vmem_unmap(void* address, size_t size) {
  Hook hook;
  const auto unmap = [&] { return real::hsa_amd_vmem_unmap(address, size); };
  return hook.active()
             ? unmap_physical(hook.process(), reinterpret_cast<uint64_t>(address), size, unmap)
             : unmap();
}

hsa_status_t hsa_amd_vmem_retain_alloc_handle(hsa_amd_vmem_alloc_handle_t* handle, void* address) {
  Hook hook;
  const hsa_status_t result = real::hsa_amd_vmem_retain_alloc_handle(handle, address);
  if (result != kSuccess || !hook.active() || handle == nullptr) return result;
  PhysicalTable& physical = hook.process().physical;
  if (const uint64_t memory = physical.memory_at(reinterpret_cast<uint64_t>(address))) {
    physical.add_reference(handle->handle, memory);
  }
  return result;
}

hsa_status_t hsa_amd_vmem_export_shareable_handle(int* dmabuf, hsa_amd_vmem_alloc_handle_t handle,
                                                  uint64_t flags) {
  Hook hook;
  const hsa_status_t result = real::hsa_amd_vmem_export_shareable_handle(dmabuf, handle, flags);
  PhysicalTable::Freed charge;
  if (result == kSuccess && hook.active() && note_exported(hook.process(), handle.handle, charge)) {
    note_descriptor(hook.process(), *dmabuf, charge);
  }
  return result;
}

hsa_status_t hsa_amd_vmem_import_shareable_handle(int dmabuf, hsa_amd_vmem_alloc_handle_t* handle) {
  Hook hook;
  const auto import = [&] { return real::hsa_amd_vmem_import_shareable_handle(dmabuf, handle); };
  if (!hook.active() || handle == nullptr) return import();
  ImportCall call(hook.process(), dmabuf);
  return enter_imported(hook.process(), call, import(), handle);
}

// Handles for other machines that share a fabric with this one. They also work on this machine.
hsa_status_t hsa_amd_vmem_export_fabric_handle(hsa_fabric_handle_t* fabric,
                                               hsa_amd_vmem_alloc_handle_t handle, uint64_t flags) {
  Hook hook;
  const hsa_status_t result = real::hsa_amd_vmem_export_fabric_handle(fabric, handle, flags);
  PhysicalTable::Freed charge;
  if (result == kSuccess && hook.active() && note_exported(hook.process(), handle.handle, charge)) {
    note_handle(hook.process(), fabric, sizeof *fabric, token_of(charge));
  }
  return result;
}

hsa_status_t hsa_amd_vmem_import_fabric_handle(hsa_fabric_handle_t fabric,
                                               hsa_amd_vmem_alloc_handle_t* handle) {
  Hook hook;
  const auto import = [&] { return real::hsa_amd_vmem_import_fabric_handle(fabric, handle); };
  if (!hook.active() || handle == nullptr) return import();
  ImportCall call(hook.process(), &fabric, sizeof fabric);
  return enter_imported(hook.process(), call, import(), handle);
}

}  // namespace fracgpu::hsa
