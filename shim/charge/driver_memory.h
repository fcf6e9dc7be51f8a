// Device memory that a runtime asks its kernel driver for on its own account, such as scratch
// memory.
//
// Where the library sees the request, the size is known: it is reserved before the driver is asked,
// and is overhead, to the unit, once the driver has given it.
#pragma once

#include <cstdint>

#include "shim/process/process.h"

namespace fracgpu {

class DriverMemory {
 public:
  // Takes `Process::cold_paths`, which the caller must not hold. Calls no vendor's functions but
  // the readings of the driver-reported usage: the runtime may hold any locks of its own.
  DriverMemory(Process& process, int device_index, uint64_t units);
  // What the driver did not give is given back.
  ~DriverMemory();
  DriverMemory(const DriverMemory&) = delete;
  DriverMemory& operator=(const DriverMemory&) = delete;

  // Whether there is room.
  explicit operator bool() const { return granted_; }
  // Why not. Nothing has been reported.
  Refusal& refusal() { return refusal_; }

  // The driver has given it, under this key (DriverBuffers).
  void taken(uint64_t key);

 private:
  Process& process_;
  int device_index_;
  uint64_t units_;
  Refusal refusal_;
  bool granted_;
};

}  // namespace fracgpu
