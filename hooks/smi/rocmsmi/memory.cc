// The memory that librocm_smi64 reports, and so rocm-smi and every exporter. They show the capped
// device, with the tenant's holdings as used. Host memory (GTT) has no cap.
#include <algorithm>

#include "hooks/smi/amd_view.h"
#include "hooks/smi/rocmsmi/library.h"
#include "shim/process/hook_scope.h"

namespace fracgpu::rocmsmi {
namespace {

bool view_of(uint32_t device, TenantView& view) {
  Process* process = Process::self();
  kfd::Key key;
  if (process == nullptr || !key_of(device, key)) return false;
  uint64_t physical = 0;
  real::rsmi_dev_memory_total_get(device, kVram, &physical);
  return kfd::view(Observation(*process), key, physical, view);
}

// As for libamd_smi: see hooks/smi/amdsmi/memory.cc.
bool all_is_visible(uint32_t device) {
  uint64_t all = 0, visible = 0;
  return real::rsmi_dev_memory_total_get(device, kVram, &all) == kSuccess &&
         real::rsmi_dev_memory_total_get(device, kVisibleVram, &visible) == kSuccess &&
         visible >= all;
}

}  // namespace

rsmi_status_t rsmi_dev_memory_total_get(uint32_t device, rsmi_memory_type_t type, uint64_t* total) {
  if (is_for_copy(__builtin_return_address(0))) {
    return copy::real::rsmi_dev_memory_total_get(device, type, total);
  }
  const HookScope scope;
  const rsmi_status_t result = real::rsmi_dev_memory_total_get(device, type, total);
  TenantView view;
  if (result == kSuccess && total != nullptr && scope.outermost() && view_of(device, view)) {
    if (type == kVram || (type == kVisibleVram && all_is_visible(device))) {
      *total = view.cap;
    } else if (type == kVisibleVram) {
      *total = std::min(*total, view.cap);
    }
  }
  return result;
}

rsmi_status_t rsmi_dev_memory_usage_get(uint32_t device, rsmi_memory_type_t type, uint64_t* used) {
  if (is_for_copy(__builtin_return_address(0))) {
    return copy::real::rsmi_dev_memory_usage_get(device, type, used);
  }
  const HookScope scope;
  const rsmi_status_t result = real::rsmi_dev_memory_usage_get(device, type, used);
  TenantView view;
  if (result == kSuccess && used != nullptr && scope.outermost() && view_of(device, view)) {
    if (type == kVram || (type == kVisibleVram && all_is_visible(device))) {
      *used = view.used;
    } else if (type == kVisibleVram) {
      *used = std::min(*used, view.used);
    }
  }
  return result;
}

}  // namespace fracgpu::rocmsmi
