// Device memory that a runtime requests from its kernel driver for itself, such as scratch memory.
//
// If the library sees the request, it knows the size. It reserves that size before the driver is
// asked. Once the driver has given the memory, the size is overhead, exact to the unit.
#pragma once

#include <cstdint>

#include "shim/process/process.h"

namespace fracgpu {

class DriverMemory {
 public:
  // Takes `Process::cold_paths`, which the caller must not hold. Calls no vendor's functions except
  // the readings of the driver-reported usage: the runtime may hold any of its own locks.
  DriverMemory(Process& process, int device_index, uint64_t units);
  // Gives back what the driver did not give.
  ~DriverMemory();
  DriverMemory(const DriverMemory&) = delete;
  DriverMemory& operator=(const DriverMemory&) = delete;

  // Whether the cap has room.
  explicit operator bool() const { return granted_; }
  // The reason if there is none. It was not reported yet.
  Refusal& refusal() { return refusal_; }

  // The driver has given the memory, under this key (DriverBuffers).
  void taken(uint64_t key);
  // The same for memory that the driver's count of a process leaves out: enters it in `buffers`.
  // Takes no lock of Process.
  void taken_uncounted(DriverBuffers& buffers, uint64_t key);

 private:
  Process& process_;
  int device_index_;
  uint64_t units_;
  Refusal refusal_;
  bool granted_;
};

// Lists memory of `buffers` as an export. Returns its token in OpenExports; 0 if the entry is empty
// or has no units. An import is not exported again.
uint64_t list_buffer(Process& process, DriverBuffers& buffers, const DriverBuffers::Entry& buffer,
                     OpenExports::Of kind);

// The same for the memory with this key, which goes to other processes by this descriptor.
void note_exported_buffer(Process& process, DriverBuffers& buffers, uint64_t key, int fd,
                          OpenExports::Of kind);

// The driver got uncounted memory back. If it was exported, it stays charged while a descriptor
// holds it.
void release_uncounted(Process& process, const DriverBuffers::Entry& buffer, OpenExports::Of kind);

}  // namespace fracgpu
