// What libcuda asks NVIDIA's kernel driver (the resource manager, RM) for, seen at its ioctls.
//
// Launches, lazily loaded code and much else make libcuda take device memory that no call asks for.
// It is reserved under the cap before RM gives it, and where it does not fit, RM seems to be out of
// memory: libcuda then does what it does on a full device, and the call fails with the ordinary
// error.
#pragma once

#include <cstdint>

#include "shim/process/process.h"

namespace fracgpu::cuda {

// From now on. libcuda must be loaded. Cheap when done before. Where libcuda imports no ioctl, what
// it takes is found by readings of the driver-reported usage alone.
void watch_kernel_calls();

// Whether what libcuda takes on the device by itself comes through here: it was seen to.
bool kernel_calls_are_watched(int device_index);
// The same of the device of the current context, if there is one.
bool kernel_calls_are_watched(Process& process);

// Within it the calling thread calls libcuda for a hook. What it does not stand for, a hook charges
// by itself: RM's memory is then left alone. Calls of the program that are not hooked are charged
// without one. One that lives inside another takes its place.
class KernelCall {
 public:
  // How the memory is charged that RM gives.
  enum class Charge {
    at_once,      // by itself, until RM gets it back
    as_overhead,  // by the caller, as overhead that a reading tells
    as_asked      // by the caller, which knows when it is given back
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
