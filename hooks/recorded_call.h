// Common parts of the wrappers of recorded calls. The wrappers stand between the hooks and a
// vendor's library, in its slots (VendorLibrary::wrap), from the start of a recording until the
// process ends.
#pragma once

#include "shim/process/process.h"

namespace fracgpu {

// One call of a wrapper. Calls of the library to its own exports within it are a part of it.
class RecordedCall {
 public:
  RecordedCall() : outermost_(!inside_) {
    inside_ = true;
    Process* const process = outermost_ ? Process::known() : nullptr;
    if (process != nullptr && process->recorder.is_on()) process_ = process;
  }
  ~RecordedCall() {
    if (outermost_) inside_ = false;
  }
  RecordedCall(const RecordedCall&) = delete;
  RecordedCall& operator=(const RecordedCall&) = delete;

  // Null if there is nothing to record.
  Process* process() const { return process_; }

 private:
  [[gnu::tls_model("initial-exec")]] static inline thread_local bool inside_ = false;

  bool outermost_;
  Process* process_ = nullptr;
};

// With a negative `device_index`, the memory is not charged, and nothing is recorded.
inline void record_allocation(const RecordedCall& call, ring::Kind kind, int device_index,
                              const char* api, uint64_t address, uint64_t bytes, uint64_t taken,
                              uint64_t owner) {
  if (call.process() == nullptr || device_index < 0) return;
  call.process()->recorder.add({.type = ring::Type::allocated,
                                .kind = kind,
                                .device = static_cast<uint8_t>(device_index),
                                .address = address,
                                .bytes = bytes,
                                .taken = taken,
                                .owner = owner},
                               api);
}

// A release is recorded before the driver is called, because another thread may get the address
// afterwards. `call_driver()` returns 0 on success.
template <typename CallDriver>
auto record_release(uint64_t key, const char* api, CallDriver call_driver) {
  const RecordedCall call;
  const auto tell = [&](ring::Type type) {
    call.process()->recorder.add({.type = type, .address = key}, api);
  };
  const bool told = call.process() != nullptr && key != 0;
  if (told) tell(ring::Type::released);
  const auto result = call_driver();
  if (told && result != 0) tell(ring::Type::kept);
  return result;
}

}  // namespace fracgpu
