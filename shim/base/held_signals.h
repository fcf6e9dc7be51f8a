// Keeps the signals that a write may raise away from the host process.
#pragma once

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <initializer_list>

namespace fracgpu {

// While this exists, the calling thread's writes fail with an error and never with a signal:
// SIGPIPE (a pipe without a reader), SIGXFSZ (RLIMIT_FSIZE) and SIGTTOU (a background job on a
// terminal with `tostop`, which the kernel lets write if the signal is blocked). The first two are
// raised for the thread that writes. A signal that was already pending stays pending. Leaves errno
// alone.
//
// On Linux sigprocmask changes only the calling thread; pthread_sigmask would need glibc 2.32.
class HeldSignals {
 public:
  HeldSignals() {
    sigset_t pending;
    sigpending(&pending);
    sigemptyset(&held_);
    for (const int signal : {SIGPIPE, SIGXFSZ, SIGTTOU}) sigaddset(&held_, signal);
    sigemptyset(&raised_);
    for (const int signal : {SIGPIPE, SIGXFSZ}) {
      if (sigismember(&pending, signal) == 0) sigaddset(&raised_, signal);
    }
    sigprocmask(SIG_BLOCK, &held_, &before_);
  }

  ~HeldSignals() {
    const int code = errno;
    constexpr timespec kNow = {};
    constexpr size_t kKernelSet = 8;  // bytes of the kernel's signal set
    while (syscall(SYS_rt_sigtimedwait, &raised_, nullptr, &kNow, kKernelSet) > 0) {
    }
    sigprocmask(SIG_SETMASK, &before_, nullptr);
    errno = code;
  }

  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

 private:
  sigset_t held_, raised_, before_;
};

}  // namespace fracgpu
