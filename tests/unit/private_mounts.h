// Runs a part of a test where it may do to /dev/shm whatever it likes.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace fracgpu {

// Runs `body` in a child with a mount namespace of its own. Skips where that is not permitted, or
// where it returns 77.
inline void with_private_mounts(const std::function<int()>& body) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root for a mount namespace";
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", "none", MS_REC | MS_PRIVATE, nullptr) != 0) {
      _exit(77);
    }
    _exit(body());
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no mount namespace can be made here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace fracgpu
