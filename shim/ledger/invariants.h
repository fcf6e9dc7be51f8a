// Asserts in debug builds that each change of leases keeps their sum within the cap.
#pragma once

#include "fracgpu/ledger_layout.h"
#include "shim/ledger/grow_lock.h"

namespace fracgpu {

// Declared while the file's lock is held; ends before the lock is given back. Every process of the
// tenant can write into the file, so its content is input: damage from outside causes refusals and
// never ends a process. The assertion is therefore weaker than Ledger::check_invariants: leases
// that fitted when the scope began fit when it ends. Reserving within the lease and releasing have
// no assertion, since they do not change the lease.
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
