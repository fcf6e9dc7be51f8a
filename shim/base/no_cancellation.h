// Keeps threads from being cancelled while they hold something of ours.
#pragma once

#include <pthread.h>

namespace fracgpu {

// While this exists, the calling thread is not cancelled, whichever function of a vendor we call.
// The unwinding of a cancelled thread skips our frames and gives no lock back. A pending
// cancellation takes effect at the program's own next cancellation point. The scopes of a thread
// end in the opposite order.
class NoCancellation {
 public:
  NoCancellation() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancellation() { pthread_setcancelstate(before_, nullptr); }
  NoCancellation(const NoCancellation&) = delete;
  NoCancellation& operator=(const NoCancellation&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace fracgpu
