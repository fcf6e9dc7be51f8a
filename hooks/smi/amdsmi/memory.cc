// The memory that libamd_smi reports, and so amd-smi and every exporter. They show the capped
// device, with the tenant's holdings as used. Host memory (GTT) has no cap.
//
// The library calls some of its own exports, so these hooks also run inside it. Only the outermost
// call is changed.
#include <algorithm>

#include "hooks/smi/amd_view.h"
#include "hooks/smi/amdsmi/library.h"
#include "shim/process/hook_scope.h"

namespace fracgpu::amdsmi {
namespace {

bool view_of(amdsmi_processor_handle handle, TenantView& view) {
  Process* process = Process::self();
  kfd::Key key;
  if (process == nullptr || known_version() == 0 || !key_of(handle, key)) return false;
  uint64_t physical = 0;
  real::amdsmi_get_gpu_memory_total(handle, kVram, &physical);
  return kfd::view(Observation(*process), key, physical, view);
}

// Calls `call()`, the library's own function. If the device is capped, then passes the tenant's
// view to `show`.
template <typename Call, typename Show>
amdsmi_status_t show_memory(amdsmi_processor_handle handle, const void* output, const Call& call,
                            const Show& show) {
  library.resolve();
  const HookScope scope;
  const amdsmi_status_t result = call();
  TenantView view;
  if (result == kSuccess && output != nullptr && scope.outermost() && view_of(handle, view)) {
    show(view);
  }
  return result;
}

// If the host can address only a part of the device's memory, the tenant's share of that part is
// not known. It is at most the whole part.
bool all_is_visible(amdsmi_processor_handle handle) {
  uint64_t all = 0, visible = 0;
  return real::amdsmi_get_gpu_memory_total(handle, kVram, &all) == kSuccess &&
         real::amdsmi_get_gpu_memory_total(handle, kVisibleVram, &visible) == kSuccess &&
         visible >= all;
}

template <typename Number>
Number mib(uint64_t bytes) {
  return static_cast<Number>(bytes >> 20);
}

}  // namespace

amdsmi_status_t amdsmi_get_gpu_memory_total(amdsmi_processor_handle handle,
                                            amdsmi_memory_type_t type, uint64_t* total) {
  const auto call = [&] { return real::amdsmi_get_gpu_memory_total(handle, type, total); };
  return show_memory(handle, total, call, [&](const TenantView& view) {
    if (type == kVram || (type == kVisibleVram && all_is_visible(handle))) {
      *total = view.cap;
    } else if (type == kVisibleVram) {
      *total = std::min(*total, view.cap);
    }
  });
}

amdsmi_status_t amdsmi_get_gpu_memory_usage(amdsmi_processor_handle handle,
                                            amdsmi_memory_type_t type, uint64_t* used) {
  const auto call = [&] { return real::amdsmi_get_gpu_memory_usage(handle, type, used); };
  return show_memory(handle, used, call, [&](const TenantView& view) {
    if (type == kVram || (type == kVisibleVram && all_is_visible(handle))) {
      *used = view.used;
    } else if (type == kVisibleVram) {
      *used = std::min(*used, view.used);
    }
  });
}

amdsmi_status_t amdsmi_get_gpu_vram_usage(amdsmi_processor_handle handle, void* usage) {
  const auto call = [&] { return real::amdsmi_get_gpu_vram_usage(handle, usage); };
  return show_memory(handle, usage, call, [&](const TenantView& view) {
    set_number(usage, 0, mib<uint32_t>(view.cap));
    set_number(usage, 4, mib<uint32_t>(view.used));
  });
}

amdsmi_status_t amdsmi_get_gpu_vram_info(amdsmi_processor_handle handle, void* info) {
  const auto call = [&] { return real::amdsmi_get_gpu_vram_info(handle, info); };
  return show_memory(handle, info, call, [&](const TenantView& view) {
    const uint32_t at = vram_info_size(known_version());
    set_number(info, at, mib<uint64_t>(view.cap));
  });
}

}  // namespace fracgpu::amdsmi
