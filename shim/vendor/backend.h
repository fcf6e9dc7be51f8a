// The boundary to the vendors: one struct of functions for each, which is all that the core knows
// of it.
//
// Driver-reported usage is what a driver itself reports about devices and about what each process
// holds. It is read on cold paths only, since a reading costs milliseconds: when a context is made
// or destroyed, before a refusal, and before a dead process's memory is released. Devices are named
// by their key in the ledger. No function needs a lock held. None may be called with a spin lock
// held, and `start` with no lock of ours at all.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "shim/config/device_name.h"
#include "shim/vendor/vendor_library.h"

namespace fracgpu {

// Every query returns false if the driver does not report the answer or cannot be trusted. So do
// the defaults of queries that a vendor leaves out, except device_may_exist.
struct VendorBackend {
  const char* name;

  // Its libraries, whose functions are intercepted.
  std::span<VendorLibrary* const> libraries;

  // Whether the device is one of this vendor's.
  bool (*owns)(const char* device_key);

  // Loads and starts what the other functions query, which may take hundreds of milliseconds. Until
  // then they report that nothing is known. It may wait for the loader's lock, and a constructor
  // that the loader runs under that lock may be making calls that wait for our locks. Cheap if done
  // before.
  void (*start)() = [] {};

  // From now on, the memory calls of the loaded libraries are reported to Process::recorder
  // (hooks/*/recorded.cc). Cheap if done before.
  void (*record_calls)() = [] {};

  // Device memory in bytes that the driver counts for this process, whatever made it allocate; and
  // for another process, by its PID in the initial PID namespace.
  bool (*usage_of_self)(const char* device_key, uint64_t& bytes) = [](const char*, uint64_t&) {
    return false;
  };
  bool (*usage_of)(uint32_t host_pid, const char* device_key,
                   uint64_t& bytes) = [](uint32_t, const char*, uint64_t&) { return false; };

  // The least device memory that this process has mapped, including its imports. Used if
  // `usage_of_self` fails.
  bool (*mapped_by_self)(const char* device_key, uint64_t& bytes) = [](const char*, uint64_t&) {
    return false;
  };

  // Whether `usage_of_self` may include managed memory, as much as is on the device. NVML counts
  // none: it belongs to a driver of its own (UVM).
  bool counts_managed = true;

  // Whether `usage_of_self` is more than 0 for a process that has a context. KFD counts none of
  // what the runtime starts with: 0 is a valid answer there.
  bool counts_contexts = true;

  // For libraries of the vendor none of whose functions is hooked. `brings_others`: whether a file
  // that is opened by dlopen may be one or load one; asked until one was, if a cap is configured.
  // `others_loaded`: more objects were loaded after that. It is called at a look-up of any name,
  // before the look-up, perhaps by several threads at once.
  bool (*brings_others)(std::string_view file) = [](std::string_view) { return false; };
  void (*others_loaded)() = [] {};

  // Whether the driver counts memory that its exporter has freed for a process that has it open, as
  // NVIDIA's resource manager does (memDestructCommon in mem.c of the open modules 595.45.04). KFD
  // counts it for no process.
  bool hands_on_freed_exports = false;

  // What all processes use on the device, in bytes.
  bool (*usage_of_all)(const char* device_key, uint64_t& bytes) = [](const char*, uint64_t&) {
    return false;
  };

  // The most that dead processes still hold on the device, in bytes, by the driver's own counts.
  bool (*most_held_by_dead)(const char* device_key, uint64_t& bytes) = [](const char*, uint64_t&) {
    return false;
  };

  // Makes the vendor's runtime give back device memory that it keeps unused. True if it did. Called
  // before a refusal, without `Process::cold_paths`.
  bool (*trim)(const char* device_key) = [](const char*) { return false; };

  // Whether memory may still be in use after its process is gone and no longer listed. NVIDIA's
  // driver frees it when the descriptors are closed, as a part of the process's end.
  bool frees_after_the_end = false;

  // The device's number as the vendor's tool prints it; its memory in bytes, without what the
  // driver is known to keep of it; and its bus id.
  bool (*index_of)(const char* device_key, int& index) = [](const char*, int&) { return false; };
  bool (*physical_bytes)(const char* device_key, uint64_t& bytes) = [](const char*, uint64_t&) {
    return false;
  };
  bool (*bus_id_of)(const char* device_key, BusId& bus_id) = [](const char*, BusId&) {
    return false;
  };

  // Whether the device has another name, which it may share, and that name. MIG instances have
  // their GPU's key. AMD's devices have the UUID, which on some kernels is the whole GPU's.
  bool (*is_partition)(const char* device_key) = [](const char*) { return false; };
  bool (*parent_of)(const char* device_key, Text<64>& parent_key) = [](const char*, Text<64>&) {
    return false;
  };

  // Whether the machine has a device that the selector names. False only if it certainly has none.
  bool (*device_may_exist)(const Selector& selector) = [](const Selector&) { return true; };

  // The device's name for people: its key, and its bus id if the key means little to them.
  Text<96> (*describe)(const char* device_key) = [](const char* key) { return Text<96>(key); };
};

// The vendors that are built in; hooks/vendors.cc has them, tests have their own.
extern const std::span<const VendorBackend* const> vendor_backends;

// The backend of the vendor that owns the device, otherwise one that reports nothing.
const VendorBackend& backend_of(const char* device_key);

// Starts every vendor that has a library in this process.
void start_vendors();

// Whether any vendor may have a device that the selector names.
bool device_may_exist(const Selector& selector);

}  // namespace fracgpu
