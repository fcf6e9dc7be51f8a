// Invariants: what must always hold for a table, written once, as code.
//
// A class with invariants has `std::string_view check_invariants()`: the first one that does not
// hold, in words, or nothing. Unit tests call it after every random run, in every build. Debug
// builds also assert it at every public function that changes the class: they end the process.
// In a release build, where NDEBUG is defined, an assertion is no code at all.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <cstddef>
#include <string_view>

#include "shim/base/descriptor.h"

namespace fracgpu {

#ifdef NDEBUG
inline constexpr bool kAssertsInvariants = false;
#else
inline constexpr bool kAssertsInvariants = true;
#endif

// Ends the process unless `broken` is empty. Does not allocate: the caller may be the program's
// malloc.
inline void require_invariant(std::string_view broken) {
  if (broken.empty()) return;
  for (const std::string_view text :
       {std::string_view("fracgpu: broken invariant: "), broken, std::string_view("\n")}) {
    [[maybe_unused]] const ssize_t written = write_own(STDERR_FILENO, text.data(), text.size());
  }
  abort();
}

// Decides when a table's next check is due. A check reads every slot, so a large table is checked
// once in as many changes as it has slots: each change then costs O(1) on average.
class InvariantTimer {
 public:
#ifndef NDEBUG
  bool is_due(size_t slots) {
    constexpr size_t kFew = 64;  // the initial size of a table
    if (slots > kFew && ++changes_ < slots) return false;
    changes_ = 0;
    return true;
  }

 private:
  size_t changes_ = 0;
#endif
};

// Asserts the table's invariants at the end of the scope. It is declared after the table's lock, so
// that it ends first. `Table` has `find_broken_invariant()`, for which the lock is already held,
// and `slots()`.
template <typename Table>
class InvariantScope {
 public:
  InvariantScope(const Table& table, InvariantTimer& timer) : table_(table), timer_(timer) {}
  ~InvariantScope() {
#ifndef NDEBUG
    if (timer_.is_due(table_.slots())) require_invariant(table_.find_broken_invariant());
#endif
  }
  InvariantScope(const InvariantScope&) = delete;
  InvariantScope& operator=(const InvariantScope&) = delete;

 private:
  [[maybe_unused]] const Table& table_;
  [[maybe_unused]] InvariantTimer& timer_;
};

}  // namespace fracgpu
