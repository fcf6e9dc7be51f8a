// Typed access to a vendor's real functions, made from the rows of its functions.inc.
//
// A vendor's header (hooks/cuda/driver.h) expands its table into slots, into callable
// `RealFunction`s over them, and into the prototypes of our exported hooks. A thread that finds a
// wrapper in a slot also sees the function that it wraps (VendorLibrary::wrap).
#pragma once

#include <atomic>

namespace fracgpu {

// Calls the function in `slot`. If the library lacks it, returns `Missing`, which is what an
// uninitialised library of that vendor returns.
template <typename Signature, int Missing>
struct RealFunction;

template <typename... Parameters, int Missing>
struct RealFunction<int(Parameters...), Missing> {
  std::atomic<void*>& slot;

  bool exists() const { return slot.load(std::memory_order_relaxed) != nullptr; }
  int operator()(Parameters... parameters) const {
    const auto function =
        reinterpret_cast<int (*)(Parameters...)>(slot.load(std::memory_order_acquire));
    return function != nullptr ? function(parameters...) : Missing;
  }
};

}  // namespace fracgpu
