// The OFD lock under which leases grow and slots and devices are assigned.
#pragma once

#include <cstdint>

#include "shim/base/text.h"
#include "shim/base/unforked.h"
#include "shim/ledger/ledger_file.h"

namespace fracgpu {

// Holds the file's one lock for one thread. Leases grow, slots are claimed or reaped, and devices
// are added only under it. The kernel drops it when the holder dies. No child inherits it: threads
// that fork wait until the holder is done. Waiting is bounded, because a holder may be stopped. Not
// recursive: a second one in the same process waits for the first.
class GrowLock {
 public:
  // Only a stopped holder makes a caller wait this long. When 64 programs start at once on two
  // cores, 2 of 468 waits are longer than 0.5 ms, and the longest is 13 ms.
  static constexpr long kLockTimeout_ms = 5000;
  // How long to wait. full: kLockTimeout_ms. brief: as long as a running holder may take. least:
  // just long enough to distinguish a busy lock from one whose holder has not moved since the last
  // wait. none: not at all.
  enum class LockTimeout { full, brief, least, none };

  explicit GrowLock(const LedgerFile& file, LockTimeout timeout = LockTimeout::full);
  // For a thread that wants more than its lease: it first takes its turn among its process's
  // threads.
  GrowLock(const LedgerFile& file, LockTimeout timeout, uint32_t slot);
  ~GrowLock();
  GrowLock(const GrowLock&) = delete;
  GrowLock& operator=(const GrowLock&) = delete;

  explicit operator bool() const { return held_; }
  // Whether this thread has its turn, with or without the lock itself.
  bool has_turn() const { return has_turn_; }
  // Another thread or process held one of the two locks for the whole wait, or no descriptor is
  // free to take it with.
  bool is_stuck() const { return stuck_; }
  int fd() const { return fd_; }
  const Message& error() const { return error_; }
  static Message stuck_message(const LedgerFile& file);

 private:
  // The result of one attempt to lock a byte, and the state of the wait so far.
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
