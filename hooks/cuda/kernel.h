// What libcuda asks NVIDIA's kernel driver (the resource manager, RM) for, seen at its ioctls.
//
// Launches, lazily loaded code and much else make libcuda take device memory that no API call
// requests explicitly. It is reserved under the cap before RM gives it. If it does not fit, libcuda
// gets RM's out-of-memory status: it then acts as on a full device, and the call fails with the
// ordinary error.
#pragma once

#include <cstdint>

#include "shim/process/process.h"

namespace fracgpu::cuda {

// Begins to watch. libcuda must be loaded. Cheap if it was called before. If libcuda imports no
// ioctl, the memory that it takes is found only by readings of the driver-reported usage.
void watch_kernel_calls();

// Whether a request of libcuda's for this device was seen here. False for a negative index.
bool kernel_calls_are_watched(int device_index);
// The same for the device of the current context; false without one.
bool kernel_calls_are_watched(Process& process);

// Marks a call of libcuda that a hook makes, and decides how the memory is charged that RM gives
// within it. In a hook without a KernelCall the hook charges by itself, and requests pass. Outside
// of hooks, as in a launch, each request is charged. An inner KernelCall replaces the outer one.
class KernelCall {
 public:
  // Who charges the memory that RM gives.
  enum class Charge {
    at_once,      // the request, until RM gets the memory back
    as_overhead,  // the caller, as overhead that a reading measures
    as_asked      // the caller, which knows when the memory is freed
  };
  // `units` are reserved by the caller already.
  KernelCall(Process& process, int device_index, Charge charge, uint64_t units = 0);
  ~KernelCall();
  KernelCall(const KernelCall&) = delete;
  KernelCall& operator=(const KernelCall&) = delete;

  int device_index() const { return device_index_; }

  // What was reserved beyond the caller's units: the caller's from now on.
  uint64_t take_excess();

  // Whether RM has given or got back any memory within the call.
  bool has_changed() const { return has_changed_; }

  // The units that were refused last for want of room, 0: none; and why.
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

}  // namespace fracgpu::cuda
