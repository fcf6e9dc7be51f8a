// The processes that libamd_smi lists: only the tenant's own, with the bytes that the ledger has
// for them.
//
// The hook reads a list in full into its own memory, removes entries of other tenants, and sets the
// bytes of the rest. The caller then gets as much of it as the library would return from a list of
// that length. The lists of a device have PIDs of the caller's namespace. KFD's lists have the
// host's.
#include "hooks/smi/amd_view.h"
#include "hooks/smi/amdsmi/library.h"
#include "shim/process/hook_scope.h"

namespace fracgpu::amdsmi {
namespace {

// In the sum of all kinds of memory, only the device's part changes.
void set_usage(void* entry, const UsageLayout& layout, uint64_t bytes) {
  const auto before = number_at<uint64_t>(entry, layout.vram);
  const auto all = number_at<uint64_t>(entry, layout.memory);
  set_number(entry, layout.vram, bytes);
  set_number(entry, layout.memory, all - std::min(all, before) + bytes);
}

// A device whose list must show the tenant's own processes only.
struct CappedDevice {
  kfd::Key key;
  bool find(const Observation& look, amdsmi_processor_handle handle) {
    uint64_t physical = 0;
    TenantView view;
    real::amdsmi_get_gpu_memory_total(handle, kVram, &physical);
    return key_of(handle, key) && kfd::view(look, key, physical, view);
  }
};

// Copies a list to the caller as the library does. Without room, only the count is returned. With
// too little room, the array is filled, and the error is returned with the count.
amdsmi_status_t give(const ProcessList& entries, void* list, uint32_t* count) {
  const uint32_t capacity = *count;
  *count = entries.count();
  if (capacity == 0) return kSuccess;
  entries.copy_to(list, capacity);
  return capacity < entries.count() ? kOutOfResources : kSuccess;
}

// The old list has PIDs only.
bool lists_pids() {
  return real::amdsmi_get_gpu_process_info.exists();
}

amdsmi_status_t list_of_device(const Observation& look, const CappedDevice& device,
                               amdsmi_processor_handle handle, uint32_t* count, void* list) {
  const bool pids_alone = lists_pids();
  ProcessList entries(pids_alone ? sizeof(uint32_t) : kLongNames.bytes);
  const auto read = [&](void* to, uint32_t* room) {
    return real::amdsmi_get_gpu_process_list(handle, room, to);
  };
  const amdsmi_status_t result = entries.read_all(kOutOfResources, read);
  if (result != kSuccess) return result;
  const ProcessLayout* layout = nullptr;
  if (!pids_alone) {
    layout = &layout_written(entries.entries<unsigned char>(), entries.count());
    entries.set_entry_bytes(layout->bytes);
  }
  entries.keep_if([&](unsigned char* entry) {
    const uint32_t at = layout != nullptr ? layout->pid : 0;
    const int slot = look.find(process_of_either(number_at<uint32_t>(entry, at)));
    if (slot >= 0 && layout != nullptr) {
      set_usage(entry, layout->usage, look.held(slot, device.key.c_str()));
    }
    return slot >= 0;
  });
  return give(entries, list, count);
}

// Sets the bytes of an entry in the list by PID. The entry has one number for each device that the
// caller asked for.
bool show_by_pid(const Observation& look, unsigned char* entry,
                 const amdsmi_processor_handle* handles, uint32_t handle_count) {
  const int slot = look.find(process_of_either(number_at<uint32_t>(entry, 0)));
  if (slot < 0) return false;
  const uint32_t devices = std::min(number_at<uint32_t>(entry, kByPidCount), kByPidDevices);
  for (uint32_t i = 0; i < devices; ++i) {
    unsigned char* const usage = entry + kByPidFirst + i * kByPidEntryBytes;
    const auto number = number_at<uint32_t>(usage, 0);
    CappedDevice device;
    if (number < handle_count && device.find(look, handles[number])) {
      set_usage(usage, kByPidUsage, look.held(slot, device.key.c_str()));
    }
  }
  return true;
}

}  // namespace

amdsmi_status_t amdsmi_get_gpu_process_list(amdsmi_processor_handle handle, uint32_t* count,
                                            void* list) {
  library.resolve();
  const HookScope scope;
  Process* process = scope.outermost() ? Process::self() : nullptr;
  const bool asks = count != nullptr && (list != nullptr || *count == 0);
  if (process != nullptr && asks) {
    const Observation look(*process);
    CappedDevice device;
    if (known_version() != 0 && device.find(look, handle)) {
      return list_of_device(look, device, handle, count, list);
    }
  }
  return real::amdsmi_get_gpu_process_list(handle, count, list);
}

amdsmi_status_t amdsmi_get_gpu_process_info(amdsmi_processor_handle handle, uint32_t pid,
                                            void* info) {
  library.resolve();
  const HookScope scope;
  const bool known = Process::self() != nullptr && known_version() != 0;
  const auto call = [&] { return real::amdsmi_get_gpu_process_info(handle, pid, info); };
  const auto edit = [&](const Observation& look, int slot) {
    CappedDevice device;
    if (info == nullptr || !device.find(look, handle)) return;
    // This function is gone since ROCm 6.1, before the names became longer.
    set_usage(info, kShortNames.usage, look.held(slot, device.key.c_str()));
  };
  return kfd::report_process(scope.outermost() && known, pid, kNotFound, call, edit);
}

amdsmi_status_t amdsmi_get_gpu_process_list_by_pid(amdsmi_processor_handle* handles,
                                                   uint32_t handle_count, void* list,
                                                   uint32_t* count) {
  library.resolve();
  const HookScope scope;
  Process* process = scope.outermost() ? Process::self() : nullptr;
  const auto read = [&](void* to, uint32_t* room) {
    return real::amdsmi_get_gpu_process_list_by_pid(handles, handle_count, to, room);
  };
  const bool asks = handles != nullptr && count != nullptr && (list != nullptr || *count == 0);
  if (process == nullptr || !asks || known_version() == 0) return read(list, count);
  const Observation look(*process);
  if (!kfd::any_capped(look)) return read(list, count);
  ProcessList entries(kByPidBytes);
  const amdsmi_status_t result = entries.read_all(kOutOfResources, read);
  if (result != kSuccess) return result;
  entries.keep_if(
      [&](unsigned char* entry) { return show_by_pid(look, entry, handles, handle_count); });
  return give(entries, list, count);
}

amdsmi_status_t amdsmi_get_gpu_compute_process_info(void* list, uint32_t* count) {
  library.resolve();
  const HookScope scope;
  Process* process = scope.outermost() ? Process::self() : nullptr;
  if (process != nullptr && count != nullptr && known_version() != 0) {
    const Observation look(*process);
    if (kfd::any_capped(look)) {
      return kfd::list_compute_processes(look, kInsufficientSize, list, count,
                                         real::amdsmi_get_gpu_compute_process_info);
    }
  }
  return real::amdsmi_get_gpu_compute_process_info(list, count);
}

amdsmi_status_t amdsmi_get_gpu_compute_process_info_by_pid(uint32_t pid, void* info) {
  library.resolve();
  const HookScope scope;
  const bool active = scope.outermost() && Process::self() != nullptr && known_version() != 0;
  const auto call = [&] { return real::amdsmi_get_gpu_compute_process_info_by_pid(pid, info); };
  const auto edit = [&](const Observation& look, int) {
    if (info != nullptr) kfd::show(look, *static_cast<kfd::ComputeProcess*>(info));
  };
  return kfd::report_process(active, pid, kNotFound, call, edit);
}

amdsmi_status_t amdsmi_get_gpu_compute_process_gpus(uint32_t pid, uint32_t* devices,
                                                    uint32_t* count) {
  library.resolve();
  const HookScope scope;
  const bool active = scope.outermost() && Process::self() != nullptr && known_version() != 0;
  const auto call = [&] { return real::amdsmi_get_gpu_compute_process_gpus(pid, devices, count); };
  return kfd::report_process(active, pid, kNotFound, call, [](const Observation&, int) {});
}

}  // namespace fracgpu::amdsmi
