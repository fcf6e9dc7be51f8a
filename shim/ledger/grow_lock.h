// The OFD lock under which a ledger's leases grow and its slots and devices are given out.
#pragma once

#include <cstdint>

#include "shim/base/text.h"
#include "shim/base/unforked.h"
#include "shim/ledger/ledger_file.h"

namespace fracgpu {

// Holds the file's one lock for one thread: leases grow, slots are claimed or reaped and devices
// are added only under it. The kernel drops it when the holder dies, and no child gets it: threads
// that fork wait for who holds it. Waiting is bounded, since a holder may be stopped. Not
// recursive: a second one in the same process waits for the first.
class GrowLock {
 public:
  // Paid beside a stopped holder alone. When 64 programs start at once on two cores, 2 of 468 waits
  // are longer than 0.5 ms, and the longest is 13 ms.
  static constexpr long kLockTimeout_ms = 5000;
  // How long to wait: as long as that; as long as a holder that runs may take; just long enough to
  // distinguish a busy lock from one whose holder has not moved since we last waited; or not at
  // all.
  enum class LockTimeout { full, brief, least, none };

  explicit GrowLock(const LedgerFile& file, LockTimeout timeout = LockTimeout::full);
  // For a thread that wants more than its lease: first takes its turn among its process's threads.
  GrowLock(const LedgerFile& file, LockTimeout timeout, uint32_t slot);
  ~GrowLock();
  GrowLock(const GrowLock&) = delete;
  GrowLock& operator=(const GrowLock&) = delete;

  explicit operator bool() const { return held_; }
  // Whether it is this thread's turn; the lock itself may be had or not.
  bool has_turn() const { return has_turn_; }
  // Somebody else held one of the two for as long as we waited, or no descriptor is free by which
  // it could be taken.
  bool is_stuck() const { return stuck_; }
  int fd() const { return fd_; }
  const Message& error() const { return error_; }
  static Message stuck_message(const LedgerFile& file);

 private:
  // How one try to lock a byte ended, and since when there are tries.
  enum class Try { locked, failed, interrupted };
  struct Wait {
    long waited = 0, pause = 2'000;
  };

  void acquire(const LedgerFile& file, LockTimeout timeout, const int64_t* turn);
  Try take(const LedgerFile& file, int64_t byte, LockTimeout timeout, Wait& wait);
  void close();

  Unforked section_;
  int fd_ = -1;
  bool held_ = false;
  bool has_turn_ = false;
  bool stuck_ = false;
  Message error_;
};

}  // namespace fracgpu
