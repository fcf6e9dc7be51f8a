// The tenant as a tool sees it: device by device and process by process, read from the ledger.
//
// Works without joining: a tool holds no memory and must leave nothing behind. If there is no
// ledger, or no process of the tenant lives, the cap comes from the configuration.
#pragma once

#include <cstdint>

#include "shim/process/process.h"

namespace fracgpu {

class Observation {
 public:
  explicit Observation(Process& process);

  // Fills in what to show of a device. False if it is not capped.
  bool device(const char* key, uint64_t physical, TenantView& view) const;

  // The slot of the tenant's living process with this name; -1 for other tenants' processes.
  int find(const ProcessName& name) const;

  // The bytes that the process in a slot holds on a device.
  uint64_t held(int slot, const char* key) const;
  // The most bytes that it has held there.
  uint64_t peak(int slot, const char* key) const;

 private:
  Process& process_;
  Ledger observed_;
  const Ledger* in_force_ = nullptr;  // null: no process holds anything
};

}  // namespace fracgpu
