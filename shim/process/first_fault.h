// The first reason why a process may allocate nothing. Later reasons do not replace it.
#pragma once

#include <atomic>

#include "shim/base/spin_lock.h"
#include "shim/base/text.h"

namespace fracgpu {

// Thread-safe. Part of Process, which a forked child replaces.
class FirstFault {
 public:
  // Keeps `why` if it is the first. False if the first reason has the same text, so that the caller
  // need not report it again.
  bool set(const Message& why) {
    Locked<SpinLock> lock(setting_);
    if (published_.load(std::memory_order_relaxed) != nullptr) return text_.view() != why.view();
    text_ = why;
    published_.store(&text_, std::memory_order_release);
    return true;
  }

  // The first reason; empty before `set`. Never changes once it is not empty.
  const Message& get() const {
    const Message* const text = published_.load(std::memory_order_acquire);
    return text != nullptr ? *text : kNone;
  }

 private:
  static constexpr Message kNone{};

  SpinLock setting_;
  Message text_;                                    // written once, before it is published
  std::atomic<const Message*> published_{nullptr};  // `text_`, or null
};

}  // namespace fracgpu
