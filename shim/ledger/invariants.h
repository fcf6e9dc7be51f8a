// Asserts in debug builds that whoever changes leases keeps their sum within the cap.
#pragma once

#include "fracgpu/ledger_layout.h"
#include "shim/ledger/grow_lock.h"

namespace fracgpu {

// Declared where the file's lock is held, and ends before it is given back. Every process of the
// tenant can write into the file, so its content is input: damage from outside is refused and never
// ends a process. So this asserts less than Ledger::check_invariants: leases that fitted when the
// scope began fit when it ends. Reserving within the lease and releasing have no assertion, since
// they leave the lease alone.
class LeaseScope {
 public:
  static constexpr int kEveryDevice = -1;

#ifdef NDEBUG
  LeaseScope(const layout::Ledger&, const GrowLock&, int) {}
#else
  LeaseScope(const layout::Ledger& ledger, const GrowLock& lock, int device);
  ~LeaseScope();

 private:
  const layout::Ledger& ledger_;
  uint32_t first_, end_;  // devices
  bool asserts_ = false;
#endif
};

}  // namespace fracgpu
