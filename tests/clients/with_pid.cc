// with_pid PID COMMAND...: runs the command in a process that has this very PID, which must be
// free, and ends as it does. Exit status 77 where the kernel does not permit it.
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

int main(int count, char** args) {
  if (count < 3) return 2;
  pid_t wanted = static_cast<pid_t>(std::atoi(args[1]));
  clone_args how = {};
  how.exit_signal = SIGCHLD;
  how.set_tid = reinterpret_cast<uint64_t>(&wanted);
  how.set_tid_size = 1;
  const long child = syscall(SYS_clone3, &how, sizeof how);
  if (child < 0) return 77;
  if (child == 0) {
    execvp(args[2], args + 2);
    _exit(127);
  }
  int status = 0;
  waitpid(static_cast<pid_t>(child), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
