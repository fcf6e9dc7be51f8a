// Distinguishes a program's calls from those that a library makes to its own exports.
#pragma once

namespace fracgpu {

// Set while the shim is inside a hook on this thread. Calls that a driver makes through its own
// exports meanwhile are internal. They must be neither charged nor capped a second time.
class HookScope {
 public:
  HookScope() : outermost_(!inside) { inside = true; }
  ~HookScope() {
    if (outermost_) inside = false;
  }
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;

  bool outermost() const { return outermost_; }
  // Whether a scope exists on this thread.
  static bool any() { return inside; }

  // Around a library's call that may call the program back: the program's calls in it are its own
  // again.
  class Callback {
   public:
    Callback() : inside_(inside) { inside = false; }
    ~Callback() { inside = inside_; }
    Callback(const Callback&) = delete;
    Callback& operator=(const Callback&) = delete;

   private:
    bool inside_;
  };

 private:
  [[gnu::tls_model("initial-exec")]] static inline thread_local bool inside = false;
  bool outermost_;
};

}  // namespace fracgpu
