// Tells `fracgpu record` what this process does with memory, where it is asked to.
//
// While nobody records there is no file to be found, when the process joins its tenant, and nothing
// else: the calls that are told of are reached by other addresses in the vendors' slots
// (VendorBackend::record_calls), which are put there when a recording begins. So a call that
// nobody records executes nothing of this.
//
// Records go into this process's ring (fracgpu/recording_ring.h). Appending waits for nobody, takes
// no lock and no memory; a record that finds the ring full is dropped and counted. Only the first
// time that a call comes from some place is there more to do: the place is described once. That
// takes a lock, which is held for memory alone: neither a system call nor the loader is waited for.
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
  // Begins to record if somebody records the tenant; `slot` is this process's in its ledger.
  // `late`: it may have memory already. True if it did, and not before.
  [[gnu::cold]] bool start(std::string_view tenant, uint32_t slot, const ProcessIdentity& self,
                           bool late);
  bool is_on() const { return recording_.load(std::memory_order_relaxed) != nullptr; }
  // What was recorded until now is complete; another recording may begin.
  void stop() { recording_.store(nullptr, std::memory_order_release); }

  // Describes a device, before anything is told of it.
  [[gnu::cold]] void add_device(int device_index, const char* key, uint64_t physical, uint64_t cap);

  // Appends a record; sets its time and thread, and for allocations and refusals their call stack.
  // `api`: a string that outlives the process; null: this call did not make it, so its call stack
  // is not taken. Nothing happens while nobody records.
  [[gnu::cold]] void add(ring::Record record, const char* api = nullptr);

  // Tells which processes of the ledger are gone. Before and after this one takes new memory, so
  // that what it takes is told behind the end of who had it before.
  [[gnu::cold]] void look_for_ends(const Ledger& ledger);

  // This process exits.
  [[gnu::cold]] void leave();

 private:
  struct Recording;

  // Never unmapped: threads may be in it.
  std::atomic<Recording*> recording_{nullptr};
  SleepLock starting_;
};

}  // namespace fracgpu
