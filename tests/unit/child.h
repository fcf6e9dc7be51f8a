// Runs a part of a test in a forked child, which may change its environment and may hang.
#pragma once

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

namespace fracgpu {

// The exit status that `body` returned in the child, or -1 when a signal ended it: SIGALRM after
// four minutes, if nothing did before, which valgrind needs beside other work.
template <typename Body>
int status_of_child(Body body) {
  // Under TSan _exit writes what stdio still holds: nothing of the parent's may be in it, not even
  // where the test forbids writing to files.
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(240);
    _exit(body());
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

}  // namespace fracgpu
