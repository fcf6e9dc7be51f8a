// Joins two APIs if one is built on the other, as HIP is on HSA. Memory is charged at the lower
// one, where it becomes physical. The program requests it at the upper one.
//
// While an UpperCall exists, the calls under it on this thread charge what it has reserved, so that
// nothing is charged twice. Refusals are reported under the UpperCall's name, which is the one that
// the user knows.
#pragma once

#include <cstdint>

#include "shim/charge/reservation.h"

namespace fracgpu {

class UpperCall {
 public:
  // Calls that the upper API makes to itself belong to the outermost one.
  explicit UpperCall(const char* api) : api_(api) {
    if (current_ == nullptr) current_ = this;
  }
  ~UpperCall() {
    if (current_ != this) return;
    current_ = nullptr;
    give_rest_back();
    if (lease_grew_) publish_allocation_count(*process_, device_index_);
  }
  UpperCall(const UpperCall&) = delete;
  UpperCall& operator=(const UpperCall&) = delete;

  bool outermost() const { return current_ == this; }
  const char* api() const { return api_; }

  // The bytes that the program requests, if that is less than what they take.
  void note_asked(uint64_t bytes) { asked_bytes_ = bytes; }
  // The same for the call that is under way on this thread; 0 if not known.
  static uint64_t asked_bytes() { return current_ != nullptr ? current_->asked_bytes_ : 0; }

  // Makes room for `units` that the call will take on a device. At most once in a call, and only in
  // the outermost one. False: refused and reported.
  bool reserve(Process& process, int device_index, uint64_t units) {
    Reservation reservation(process, device_index, units, api_);
    if (!reservation) return false;
    process_ = &process;
    device_index_ = device_index;
    remaining_ = reservation.take();
    lease_grew_ = reservation.lease_grew();
    return true;
  }

  // Whether the calls under this one have taken nothing of it.
  bool untouched() const { return !touched_; }

  // Hands what remains of the reservation (units) over to the caller.
  uint64_t take_rest() {
    const uint64_t units = remaining_;
    remaining_ = 0;
    return units;
  }

  // Gives the rest back: the calls under this one will take no more of it.
  void give_rest_back() {
    if (const uint64_t units = take_rest(); units > 0)
      process_->ledger.release(device_index_, units);
  }

  // Whether a refusal was reported under this call.
  bool refusal_reported() const { return refusal_reported_; }
  static void note_refusal_reported() {
    if (current_ != nullptr) current_->refusal_reported_ = true;
  }

  // For the lower API: takes at most `units` of what the upper call has reserved on the device
  // index.
  static uint64_t take(int device_index, uint64_t units) {
    UpperCall* const call = current_;
    if (call == nullptr || call->remaining_ == 0 || call->device_index_ != device_index) return 0;
    const uint64_t taken = units < call->remaining_ ? units : call->remaining_;
    call->remaining_ -= taken;
    call->touched_ = true;
    return taken;
  }
  static uint64_t remaining(int device_index) {
    const UpperCall* const call = current_;
    return call != nullptr && call->device_index_ == device_index ? call->remaining_ : 0;
  }
  static const char* name_or(const char* lower) {
    return current_ != nullptr ? current_->api_ : lower;
  }

 private:
  [[gnu::tls_model("initial-exec")]] static inline thread_local UpperCall* current_ = nullptr;

  const char* api_;
  Process* process_ = nullptr;
  int device_index_ = -1;
  uint64_t remaining_ = 0;  // units
  uint64_t asked_bytes_ = 0;
  bool lease_grew_ = false;
  bool touched_ = false;
  bool refusal_reported_ = false;
};

}  // namespace fracgpu
