// The boundary to the vendors: one struct of functions for each, and all that the core knows of it.
//
// Driver-reported usage is what a driver itself reports about devices and about what each process
// holds. It is read on cold paths only, since a reading costs milliseconds: when a context is made
// or destroyed, before a refusal, and before a dead process's memory is released. Devices are named
// by their key in the ledger. No function needs a lock held; none may be called with a spin lock
// held, and `start` with no lock of ours at all.
#pragma once

#include <cstdint>
#include <span>

#include "shim/config/device_name.h"
#include "shim/vendor/vendor_library.h"

namespace fracgpu {

// Every function returns false where the driver does not report the answer or cannot be trusted; so
// does each that a vendor leaves out.
struct VendorBackend {
  const char* name;

  // Its libraries, whose functions are intercepted.
  std::span<VendorLibrary* const> libraries;

  // Whether the device is one of this vendor's.
  bool (*owns)(const char* device_key);

  // Loads and starts what the other functions ask, which may take hundreds of milliseconds. Until
  // then they answer that nothing is known. It may wait for the loader's lock, and a constructor
  // that the loader runs under that lock may be making calls that wait for ours. Cheap when done
  // before.
  void (*start)() = [] {};

  // From now on what calls do with memory is told to Process::recorder (hooks/*/recorded.cc). Of
  // those libraries that are loaded; cheap when done before.
  void (*record_calls)() = [] {};

  // Device memory in bytes that the driver counts for this process, whatever made it allocate; and
  // for another one, by its PID in the initial PID namespace.
  bool (*usage_of_self)(const char* device_key, uint64_t& bytes) = [](const char*, uint64_t&) {
    return false;
  };
  bool (*usage_of)(uint32_t host_pid, const char* device_key,
                   uint64_t& bytes) = [](uint32_t, const char*, uint64_t&) { return false; };

  // The least that this process has mapped of the device, with what it has imported: for where
  // `usage_of_self` fails.
  bool (*mapped_by_self)(const char* device_key, uint64_t& bytes) = [](const char*, uint64_t&) {
    return false;
  };

  // Whether that may have managed memory in it, as much as is on the device. NVML counts none: it
  // belongs to a driver of its own (UVM).
  bool counts_managed = true;

  // Whether a process that has a context has some memory by `usage_of_self`. KFD counts none of
  // what the runtime starts with: 0 is an answer like any other there.
  bool counts_contexts = true;

  // Whether the driver counts memory that its exporter has freed for a process that has it open, as
  // NVIDIA's resource manager does (memDestructCommon in mem.c of the open modules 595.45.04). KFD
  // counts it for no process.
  bool hands_on_freed_exports = false;

  // What is in use on the device by everybody, in bytes.
  bool (*usage_of_all)(const char* device_key, uint64_t& bytes) = [](const char*, uint64_t&) {
    return false;
  };

  // No more than this do dead processes still hold of the device, in bytes, by the driver's own
  // counts.
  bool (*most_held_by_dead)(const char* device_key, uint64_t& bytes) = [](const char*, uint64_t&) {
    return false;
  };

  // Makes the vendor's runtime give back what it keeps of the device without using it. True where
  // it did. Called with no lock held, before a refusal.
  bool (*trim)(const char* device_key) = [](const char*) { return false; };

  // Whether memory may still be in use when its process is gone, and not listed any more. NVIDIA's
  // driver frees it when the descriptors are closed, as a part of the process's end.
  bool frees_after_the_end = false;

  // The device's number as the vendor's tool prints it, its memory in bytes without what the driver
  // is known to keep of it, and where it is.
  bool (*index_of)(const char* device_key, int& index) = [](const char*, int&) { return false; };
  bool (*physical_bytes)(const char* device_key, uint64_t& bytes) = [](const char*, uint64_t&) {
    return false;
  };
  bool (*bus_id_of)(const char* device_key, BusId& bus_id) = [](const char*, BusId&) {
    return false;
  };

  // Whether the device has another name, which it may share: MIG instances that of their GPU, AMD's
  // devices the UUID, which on some kernels is the whole GPU's; and that name.
  bool (*is_partition)(const char* device_key) = [](const char*) { return false; };
  bool (*parent_of)(const char* device_key, Text<64>& parent_key) = [](const char*, Text<64>&) {
    return false;
  };

  // Whether the machine has a device that the selector names. True also when that is not known:
  // false is returned only for certain.
  bool (*device_may_exist)(const Selector& selector) = [](const Selector&) { return true; };

  // The device's name for people: its key, and its bus id where the key means little to them.
  Text<96> (*describe)(const char* device_key) = [](const char* key) { return Text<96>(key); };
};

// The vendors that are built in; hooks/vendors.cc has them, tests have their own.
extern const std::span<const VendorBackend* const> vendor_backends;

// The backend of the vendor whose device it is; where it is none's, one that reports nothing.
const VendorBackend& backend_of(const char* device_key);

// Starts every vendor of whose libraries one is in this process.
void start_vendors();

// Whether any vendor may have a device that the selector names.
bool device_may_exist(const Selector& selector);

}  // namespace fracgpu
