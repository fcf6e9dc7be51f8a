// Watches libcuda's requests to NVIDIA's kernel driver (the resource manager, RM) at its ioctls.
//
// Launches, lazily loaded code and much else make libcuda take device memory that no API call
// requests explicitly. This code reserves that memory under the cap before RM gives it. If it does
// not fit, libcuda gets RM's out-of-memory status. libcuda then behaves as on a full device, and
// the call fails with the ordinary error.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/process/process.h"

namespace fracgpu::cuda {

// Starts to watch. libcuda must be loaded. Repeated calls are cheap. If libcuda imports no ioctl,
// only readings of the driver-reported usage find the memory that it takes.
void watch_kernel_calls();

// Whether the watch has seen a request of libcuda for this device. False for a negative index.
bool kernel_calls_are_watched(int device_index);
// The same for the device of the current context; false without one.
bool kernel_calls_are_watched(Process& process);

// Makes libcuda give back memory of the device that it keeps unused, as it does on a full device:
// of graphs that were destroyed, for example. True if it did. Without a context of the device, or
// if the device is not watched, nothing happens.
bool trim_driver(const char* device_key);

// Marks a call of libcuda that a hook makes, and decides how memory that RM gives within it is
// charged. In a hook without a KernelCall, the hook itself charges, and requests pass. Outside of
// hooks, as in a launch, each request is charged. An inner KernelCall replaces the outer one.
class KernelCall {
 public:
  // Where the memory that RM gives is charged.
  enum class Charge {
    at_once,      // the request, until RM gets the memory back
    as_overhead,  // the caller, as overhead that a reading measures
    as_asked,     // the caller, which knows when the memory is freed
    refused       // nowhere: the cap counts as full
  };
  // The caller has already reserved `units`.
  KernelCall(Process& process, int device_index, Charge charge, uint64_t units = 0);
  ~KernelCall();
  KernelCall(const KernelCall&) = delete;
  KernelCall& operator=(const KernelCall&) = delete;

  int device_index() const { return device_index_; }

  // The units reserved beyond the caller's units.
  uint64_t excess() const { return excess_; }
  // Returns them. The caller owns them from now on.
  uint64_t take_excess();

  // Whether RM has given or got back any memory within the call.
  bool has_changed() const { return has_changed_; }

  // The units refused last because the cap had no room (0: none), and the reason.
  uint64_t refused() const { return refused_; }
  Refusal& refusal() { return refusal_; }

 private:
  friend class KernelMemory;

  Process& process_;
  const int device_index_;
  const Charge charge_;
  uint64_t left_;  // reserved, and not given by RM yet
  uint64_t excess_ = 0;
  bool has_changed_ = false;
  uint64_t refused_ = 0;
  Refusal refusal_;
  KernelCall* const outer_;
};

// Marks a call of libcuda by which a pool's memory goes to other processes or comes from them. The
// memory is entered by the objects that RM hands over: the exporter lists each chunk by itself, and
// an importer has it until RM frees its object. (libcuda 535.261.03 and 550.163.01.)
class PoolSharing {
 public:
  PoolSharing();
  ~PoolSharing();
  PoolSharing(const PoolSharing&) = delete;
  PoolSharing& operator=(const PoolSharing&) = delete;

  // Whether RM has handed over objects that could not be entered.
  bool has_unentered() const { return has_unentered_; }
  void note_unentered() { has_unentered_ = true; }

 private:
  bool has_unentered_ = false;
};

// The number by which the descriptor's mark names a pool of this process whose chunks are listed,
// or 0.
uint32_t listed_pool(Process& process, int fd);

// The requests of one of NVIDIA's user-space libraries to RM.
class RmRequests {
 public:
  // `api`: their name in refusals.
  constexpr explicit RmRequests(const char* api) : api_(api) {}

  // The device that is charged for memory, and the call that charges it. With Process::kFault the
  // request is refused. With another negative index nothing is charged.
  struct Payer {
    int device_index = Process::kNotCapped;
    KernelCall* call = nullptr;
    int asked_on = Process::kNotCapped;  // the device of memory for which a hook pays
  };
  // `parent`: the key of the object to which the memory will belong. `process` may be null.
  virtual Payer payer_of(Process* process, uint64_t parent) = 0;
  // The call that accounts for memory that RM gets back, or null.
  virtual KernelCall* call_for(int) { return nullptr; }

  // RM has given out this key. RM gives out a handle again only if its former object ended with its
  // parent.
  virtual void given_out(Process& process, uint64_t key) { process.rm_memory.take(key); }

  // Whether memory that this process has given back unseen may make room, which a reading of the
  // driver-reported usage shows. It costs milliseconds.
  virtual bool may_read_usage(const Process&) const { return true; }

  // Stands for the library's ioctl: accounts for the memory that RM gives and gets back.
  int watch(int fd, unsigned long request, void* argument);
  // The library's own ioctl.
  int ask(int fd, unsigned long request, void* argument);

  const char* api() const { return api_; }
  std::atomic<void*> next_ioctl{nullptr};

 protected:
  ~RmRequests() = default;

 private:
  const char* const api_;
};

// The token of such memory in OpenExports.
inline uint64_t export_token(const DriverBuffers::Entry& buffer) {
  return OpenExports::token_of(OpenExports::Of::driver_memory, buffer.number);
}

// Units of memory that API calls requested and that RM has freed on this thread's requests, in all.
uint64_t asked_units_given_back();

// Accounts for memory that RM got back without a request of its own, with its parent.
void give_back_rm_memory(Process& process, const DriverBuffers::Entry& buffer);

}  // namespace fracgpu::cuda
