// Reserves and charges what a runtime requests from its kernel driver; see driver_memory.h.
#include "shim/charge/driver_memory.h"

#include "shim/charge/overhead.h"
#include "shim/charge/overhead_reading.h"

namespace fracgpu {

DriverMemory::DriverMemory(Process& process, int device_index, uint64_t units)
    : process_(process), device_index_(device_index), units_(units) {
  process.look_for_recorder();
  process.recorder.look_for_ends(process.ledger);
  granted_ = process.ledger.reserve(device_index, units, refusal_);
  // The driver-reported usage may have fallen without a call.
  if (!granted_ && refusal_.fault.empty() && refresh_overhead(process, device_index))
    granted_ = process.ledger.reserve(device_index, units, refusal_);
  process.recorder.look_for_ends(process.ledger);
}

DriverMemory::~DriverMemory() {
  if (granted_ && units_ > 0) process_.ledger.release(device_index_, units_);
}

void DriverMemory::taken(uint64_t key) {
  const OverheadLock lock(process_);
  Overhead& overhead = process_.overhead[device_index_];
  publish_overhead(process_, device_index_, overhead.units.fetch_add(units_) + units_);
  process_.driver_buffers.enter({.key = key, .units = units_, .device_index = device_index_});
  units_ = 0;
}

void DriverMemory::taken_uncounted(DriverBuffers& buffers, uint64_t key) {
  buffers.enter({.key = key, .units = units_, .device_index = device_index_});
  Overhead& overhead = process_.overhead[device_index_];
  overhead.uncounted += units_;
  overhead.has_uncounted.store(true, std::memory_order_relaxed);
  publish_overhead(process_, device_index_, overhead.units);
  units_ = 0;
}

void release_uncounted(Process& process, int device_index, uint64_t units) {
  if (units == 0) return;
  Overhead& overhead = process.overhead[device_index];
  overhead.uncounted -= units;
  publish_overhead(process, device_index, overhead.units);
  process.ledger.release(device_index, units);
}

}  // namespace fracgpu
