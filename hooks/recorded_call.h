// What the wrappers of recorded calls share. They stand between the hooks and a vendor's library,
// in its slots (VendorLibrary::wrap), from when somebody begins to record until the process ends.
#pragma once

#include "shim/process/process.h"

namespace fracgpu {

// One call of a wrapper. What the library calls of its own exports meanwhile is a part of it.
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

  // Null: there is nothing to record.
  Process* process() const { return process_; }

 private:
  [[gnu::tls_model("initial-exec")]] static inline thread_local bool inside_ = false;

  bool outermost_;
  Process* process_ = nullptr;
};

// `device_index` may be negative: then it is no memory that counts.
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

// A release is told before the driver is called: afterwards another thread may have the address.
// `call_driver()` returns 0 when it succeeded.
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
