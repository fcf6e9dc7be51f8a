// The one place that reads the environment.
//
// The program may change its environment at any time, from any thread, and the C library protects
// no reader from that. So each variable is read as early and as rarely as possible.
#pragma once

#include <string.h>

#include <atomic>
#include <string_view>

namespace fracgpu {

// The variable's value. Null if it is unset or this program runs with raised privileges (set-uid,
// file capabilities): another user then controls its environment. The text is the environment's
// own: a later setenv of the program may change it.
[[gnu::cold]] const char* trusted_environment(const char* name);

// All variables as "NAME=value", with a null behind the last one; none if this program runs with
// raised privileges. The program may change them as it may change the text above.
[[gnu::cold]] const char* const* trusted_variables();

// Calls visit(std::string_view name, const char* value) for each, until it returns false.
template <typename Visit>
void for_each_trusted_variable(Visit visit) {
  for (const char* const* at = trusted_variables(); *at != nullptr; ++at) {
    const std::string_view name(*at, strcspn(*at, "="));
    if ((*at)[name.size()] == '=' && !visit(name, *at + name.size() + 1)) return;
  }
}

// The same for a variable of a vendor's library, which reads it whatever the program's privileges.
[[gnu::cold]] const char* vendor_environment(const char* name);

// A variable that is read once, when `get` is first called. For objects with static storage; any
// thread may call `get` at any time. Takes no lock, which a fork could leave held, and no heap.
class EnvironmentCopy {
 public:
  constexpr explicit EnvironmentCopy(const char* name) : name_(name) {}

  // Like `trusted_environment`, but the text stays what it was the first time. Also null while the
  // host has no memory for it.
  const char* get() {
    const char* const text = text_.load(std::memory_order_acquire);
    if (text == nullptr) return read();
    return text != unset() ? text : nullptr;
  }

  // Makes the next `get` read it again, for tests. No thread may be using the old text.
  void forget();

 private:
  [[gnu::cold]] const char* read();
  // The value of `text_` for a variable that is not set.
  const char* unset() const { return reinterpret_cast<const char*>(this); }

  const char* const name_;
  std::atomic<const char*> text_{nullptr};  // null: not read yet
};

}  // namespace fracgpu
