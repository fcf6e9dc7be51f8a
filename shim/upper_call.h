// Joins two APIs of which one is built on the other, as HIP is on HSA: memory is charged at the
// lower one, where it becomes physical, and asked for at the upper one, where the program asks.
//
// While an UpperCall lives, what the calls under it on this thread charge is taken from what it has
// reserved, so that nothing is charged twice; and a refusal is reported by its name, which is the
// one that the user knows.
#pragma once

#include <cstdint>

#include "shim/charge.h"

namespace fracgpu {

class UpperCall {
 public:
  // Calls that the upper API makes to itself are part of the outermost one.
  explicit UpperCall(const char* api) : api_(api) {
    if (current_ == nullptr) current_ = this;
  }
  ~UpperCall() {
    if (current_ != this) return;
    current_ = nullptr;
    if (left_ > 0) process_->ledger.release(row_, left_);
    if (lease_grew_) tell_allocations(*process_, row_);
  }
  UpperCall(const UpperCall&) = delete;
  UpperCall& operator=(const UpperCall&) = delete;

  bool outermost() const { return current_ == this; }
  const char* api() const { return api_; }

  // Makes room for what the call will take on a row, once. False: refused, and said so.
  bool reserve(Process& process, int row, uint64_t units) {
    Reservation reservation(process, row, units, api_);
    if (!reservation) return false;
    process_ = &process;
    row_ = row;
    left_ = reservation.take();
    lease_grew_ = reservation.lease_grew();
    return true;
  }

  // What the calls under this one have taken of it.
  bool untouched() const { return !touched_; }

  // Hands what is left of the reservation over to the caller.
  uint64_t take_rest() {
    const uint64_t units = left_;
    left_ = 0;
    return units;
  }

  // Whether a refusal was reported under this call.
  bool said() const { return said_; }
  static void note_said() {
    if (current_ != nullptr) current_->said_ = true;
  }

  // For the lower API: at most `units` of what the upper call has reserved on the row.
  static uint64_t take(int row, uint64_t units) {
    UpperCall* const call = current_;
    if (call == nullptr || call->left_ == 0 || call->row_ != row) return 0;
    const uint64_t taken = units < call->left_ ? units : call->left_;
    call->left_ -= taken;
    call->touched_ = true;
    return taken;
  }
  static uint64_t left(int row) {
    const UpperCall* const call = current_;
    return call != nullptr && call->row_ == row ? call->left_ : 0;
  }
  static const char* name_or(const char* lower) {
    return current_ != nullptr ? current_->api_ : lower;
  }

 private:
  [[gnu::tls_model("initial-exec")]] static inline thread_local UpperCall* current_ = nullptr;

  const char* api_;
  Process* process_ = nullptr;
  int row_ = -1;
  uint64_t left_ = 0;  // units
  bool lease_grew_ = false;
  bool touched_ = false;
  bool said_ = false;
};

}  // namespace fracgpu
