// Threads that are not cancelled while they have something of ours.
#pragma once

#include <pthread.h>

namespace fracgpu {

// While it lives, the calling thread is not cancelled, by whatever function of a vendor we call:
// the unwinding of a cancelled thread passes our frames by and gives no lock back. What is pending
// then is acted upon at the program's own next cancellation point. Scopes of a thread end in the
// opposite order.
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
