// Reports this process's memory calls to `fracgpu record`, if a recorder asks for them.
//
// Without a recorder there is only one cost: a process that joins its tenant looks for a file that
// does not exist. Recorded calls are reached by other addresses in the vendors' slots
// (VendorBackend::record_calls), which are put there when a recording begins. So an unrecorded call
// executes nothing of this.
//
// Records go into this process's ring (fracgpu/recording_ring.h). Appending never waits, and takes
// no lock and no memory. A record that finds the ring full is dropped and counted. Only the first
// call from a place costs more: the place is described once. That takes a lock, which is held only
// for accesses to memory, and never during a system call or a wait for the loader.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "fracgpu/recording_ring.h"
#include "shim/base/elf.h"
#include "shim/base/sleep_lock.h"
#include "shim/ledger/ledger.h"

namespace fracgpu {

class Recorder {
 public:
  // Begins to record if a recorder records the tenant; `slot` is this process's in its ledger.
  // `late`: the process may already have memory. True if this call has begun to record.
  [[gnu::cold]] bool start(std::string_view tenant, uint32_t slot, const ProcessIdentity& self,
                           bool late);
  bool is_on() const { return recording_.load(std::memory_order_relaxed) != nullptr; }
  // Ends the recording, which is complete. Another recording may begin. Gives its memory back, now
  // or with a later one's if other threads are in it.
  [[gnu::cold]] void stop();

  // Describes a device, before any record refers to it.
  [[gnu::cold]] void add_device(int device_index, const char* key, uint64_t physical, uint64_t cap);

  // Appends a record. Sets its time and thread, and for allocations and refusals their call stack.
  // `api`: a string that outlives the process; null: this call did not make the memory, so its call
  // stack is not taken. Does nothing without a recording.
  [[gnu::cold]] void add(ring::Record record, const char* api = nullptr);

  // Reports which processes of the ledger are gone. Called before and after this process takes new
  // memory, so that its allocation is recorded behind the end of the memory's previous owner.
  [[gnu::cold]] void look_for_ends(const Ledger& ledger);

  // This process exits.
  [[gnu::cold]] void leave();

 private:
  struct Recording;
  class Use;

  std::atomic<Recording*> recording_{nullptr};
  std::atomic<uint32_t> users_{0};  // threads that may be in a recording
  SleepLock starting_;
  Recording* ended_ = nullptr;  // a list of those that are still mapped
};

}  // namespace fracgpu
