// Finds the ledger that is in force and reads it; see tenant_view.h.
#include "shim/process/tenant_view.h"

#include "shim/config/identity.h"
#include "shim/vendor/backend.h"

namespace fracgpu {

Observation::Observation(Process& process) : process_(process) {
  if (!process.fault().empty()) return;
  if (process.has_joined()) {
    in_force_ = &process.ledger;
    return;
  }
  TenantName tenant;
  Message error;
  if (tenant_name(tenant, error) &&
      observed_.observe(tenant.c_str(), error) == LedgerFile::Result::ok && observed_.any_alive()) {
    in_force_ = &observed_;
  }
}

bool Observation::device(const char* key, uint64_t physical, TenantView& view) const {
  view = TenantView{};
  if (!process_.fault().empty()) return true;  // nothing can be allocated: a device of 0 bytes
  const int device_index = in_force_ != nullptr ? in_force_->find_device(key) : -1;
  if (device_index >= 0) {
    view.cap = in_force_->cap(device_index) * layout::kUnit;
    view.used = in_force_->held(device_index, true) * layout::kUnit;
    return true;
  }
  start_vendors();
  DeviceName device;
  Message error;
  if (!process_.configuration.name_device(key, device, error)) return false;
  view.cap = process_.configuration.cap_for(device, physical);
  if (view.cap == UINT64_MAX) return false;
  // A device for which the ledger has no row left cannot be used.
  if (in_force_ != nullptr && in_force_->free_device_rows() == 0) view.cap = 0;
  return true;
}

int Observation::find(const ProcessName& name) const {
  return in_force_ != nullptr ? in_force_->find_process(name) : -1;
}

uint64_t Observation::held(int slot, const char* key) const {
  const int device_index = in_force_ != nullptr ? in_force_->find_device(key) : -1;
  return device_index >= 0 && slot >= 0
             ? in_force_->held_in_slot(device_index, slot) * layout::kUnit
             : 0;
}

uint64_t Observation::peak(int slot, const char* key) const {
  const int device_index = in_force_ != nullptr ? in_force_->find_device(key) : -1;
  return device_index >= 0 && slot >= 0
             ? in_force_->peak_in_slot(device_index, slot) * layout::kUnit
             : 0;
}

}  // namespace fracgpu
