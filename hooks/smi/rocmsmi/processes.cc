// The processes that librocm_smi64 lists: only the tenant's own, with the bytes that the ledger has
// for them. It lists the processes of all devices together, by their host PIDs.
#include "hooks/smi/amd_view.h"
#include "hooks/smi/rocmsmi/library.h"
#include "shim/process/hook_scope.h"

namespace fracgpu::rocmsmi {

rsmi_status_t rsmi_compute_process_info_get(rsmi_process_info_t* list, uint32_t* count) {
  if (is_for_copy(__builtin_return_address(0))) {
    return copy::real::rsmi_compute_process_info_get(list, count);
  }
  const HookScope scope;
  Process* process = scope.outermost() ? Process::self() : nullptr;
  if (process != nullptr && count != nullptr && is_known()) {
    const Observation look(*process);
    const auto read = [](void* to, uint32_t* room) {
      return real::rsmi_compute_process_info_get(static_cast<rsmi_process_info_t*>(to), room);
    };
    if (kfd::any_capped(look)) {
      return kfd::list_compute_processes(look, kInsufficientSize, list, count, read);
    }
  }
  return real::rsmi_compute_process_info_get(list, count);
}

rsmi_status_t rsmi_compute_process_info_by_pid_get(uint32_t pid, rsmi_process_info_t* info) {
  if (is_for_copy(__builtin_return_address(0))) {
    return copy::real::rsmi_compute_process_info_by_pid_get(pid, info);
  }
  const HookScope scope;
  const bool active = scope.outermost() && Process::self() != nullptr && is_known();
  const auto call = [&] { return real::rsmi_compute_process_info_by_pid_get(pid, info); };
  const auto edit = [&](const Observation& look, int slot) {
    if (info != nullptr) info->vram_usage = kfd::held_everywhere(look, slot, pid);
  };
  return kfd::report_process(active, pid, kNotFound, call, edit);
}

rsmi_status_t rsmi_compute_process_info_by_device_get(uint32_t pid, uint32_t device,
                                                      rsmi_process_info_t* info) {
  if (is_for_copy(__builtin_return_address(0))) {
    return copy::real::rsmi_compute_process_info_by_device_get(pid, device, info);
  }
  const HookScope scope;
  const bool active = scope.outermost() && Process::self() != nullptr && is_known();
  const auto call = [&] {
    return real::rsmi_compute_process_info_by_device_get(pid, device, info);
  };
  const auto edit = [&](const Observation& look, int slot) {
    kfd::Key key;
    TenantView view;
    if (info == nullptr || !key_of(device, key) || !kfd::view(look, key, 0, view)) return;
    info->vram_usage = look.held(slot, key.c_str());
  };
  return kfd::report_process(active, pid, kNotFound, call, edit);
}

rsmi_status_t rsmi_compute_process_gpus_get(uint32_t pid, uint32_t* devices, uint32_t* count) {
  if (is_for_copy(__builtin_return_address(0))) {
    return copy::real::rsmi_compute_process_gpus_get(pid, devices, count);
  }
  const HookScope scope;
  const bool active = scope.outermost() && Process::self() != nullptr && is_known();
  const auto call = [&] { return real::rsmi_compute_process_gpus_get(pid, devices, count); };
  return kfd::report_process(active, pid, kNotFound, call, [](const Observation&, int) {});
}

}  // namespace fracgpu::rocmsmi
