// Reserves and charges what a runtime requests from its kernel driver; see driver_memory.h.
#include "shim/charge/driver_memory.h"

#include <utility>

#include "shim/charge/in_flight.h"
#include "shim/charge/overhead.h"
#include "shim/charge/overhead_reading.h"
#include "shim/charge/vmm_calls.h"

namespace fracgpu {

DriverMemory::DriverMemory(Process& process, int device_index, uint64_t units)
    : process_(process), device_index_(device_index), units_(units) {
  process.look_for_recorder();
  process.recorder.look_for_ends(process.ledger);
  const auto reserve = [&] { granted_ = process.ledger.reserve(device_index, units, refusal_); };
  const auto may_retry = [&] { return !granted_ && refusal_.fault.empty(); };
  reserve();
  // Descriptors may have been closed, and the driver-reported usage may have fallen, without a
  // call.
  if (may_retry() && give_back_closed_exports(process)) reserve();
  if (may_retry() && refresh_overhead(process, device_index)) reserve();
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

uint64_t list_buffer(Process& process, DriverBuffers& buffers, const DriverBuffers::Entry& buffer,
                     OpenExports::Of kind) {
  if (buffer.key == 0 || buffer.is_import || buffer.units == 0) return 0;
  const uint64_t token = OpenExports::token_of(kind, buffer.number);
  const Locked<SleepLock> lock(process.exports.lock);
  bool is_first = false;
  buffers.change(buffer.key, [&](DriverBuffers::Entry& known) {
    if (known.number == buffer.number) is_first = !std::exchange(known.is_exported, true);
  });
  if (is_first) note_export(process, token, buffer.device_index, buffer.units);
  return token;
}

void note_exported_buffer(Process& process, DriverBuffers& buffers, uint64_t key, int fd,
                          OpenExports::Of kind) {
  const DriverBuffers::Entry buffer = buffers.find(key);
  const uint64_t token = list_buffer(process, buffers, buffer, kind);
  if (token != 0) note_descriptor(process, fd, buffer.units, token);
}

void release_uncounted(Process& process, const DriverBuffers::Entry& buffer, OpenExports::Of kind) {
  const int device_index = buffer.device_index;
  const InFlightScope in_flight(process);
  const uint64_t token = OpenExports::token_of(kind, buffer.number);
  const bool is_kept =
      buffer.is_exported && process.open_exports.keep(token, device_index, buffer.units);
  Overhead& overhead = process.overhead[device_index];
  overhead.uncounted -= buffer.units;
  publish_overhead(process, device_index, overhead.units);
  if (is_kept) return;
  if (buffer.is_exported) drop_export(process, token, device_index, buffer.units);
  process.ledger.release(device_index, buffer.units);
}

}  // namespace fracgpu
