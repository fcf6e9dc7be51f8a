// Why a process may allocate nothing: the first reason there was. It stays, whoever finds another.
#pragma once

#include <atomic>

#include "shim/base/spin_lock.h"
#include "shim/base/text.h"

namespace fracgpu {

// Any thread may call anything at any time. Part of Process, which a forked child replaces.
class FirstFault {
 public:
  // Keeps `why` if it is the first. False if that is what the first was told, so that it need not
  // be said again.
  bool set(const Message& why) {
    Locked<SpinLock> lock(setting_);
    if (published_.load(std::memory_order_relaxed) != nullptr) return text_.view() != why.view();
    text_ = why;
    published_.store(&text_, std::memory_order_release);
    return true;
  }

  // What the first `set` was told; empty before. Never changes once it is not empty.
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
