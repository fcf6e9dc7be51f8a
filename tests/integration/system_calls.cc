// Traces a program from one read of its stdin to the next; see system_calls.h.
#include "tests/integration/system_calls.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace fracgpu::test {
namespace {

template <typename Data>
long trace(__ptrace_request request, pid_t pid, uintptr_t address, Data data) {
  return ptrace(request, pid, address, data);
}

bool reads_stdin(const __ptrace_syscall_info& call) {
  return call.entry.nr == SYS_read && call.entry.args[0] == STDIN_FILENO;
}

// Runs on to the next system call or its end; false when the program has ended.
bool go_to_next(pid_t pid, __ptrace_syscall_info* call) {
  int signal = 0;
  for (;;) {
    int status = 0;
    if (trace(PTRACE_SYSCALL, pid, 0, static_cast<long>(signal)) != 0 ||
        waitpid(pid, &status, __WALL) != pid || !WIFSTOPPED(status)) {
      return false;
    }
    signal = WSTOPSIG(status);
    if (signal == (SIGTRAP | 0x80)) {
      return trace(PTRACE_GET_SYSCALL_INFO, pid, sizeof *call, call) > 0;
    }
    if (status >> 16 != 0) signal = 0;  // a stop of the tracer's own
  }
}

}  // namespace

int system_calls_of(Program& program, const std::string& line) {
  const pid_t pid = program.pid();
  int status = 0;
  if (trace(PTRACE_SEIZE, pid, 0, static_cast<long>(PTRACE_O_TRACESYSGOOD)) != 0 ||
      trace(PTRACE_INTERRUPT, pid, 0, 0L) != 0 || waitpid(pid, &status, __WALL) != pid) {
    ADD_FAILURE() << "cannot trace the program: " << strerror(errno);
    return -1;
  }
  program.go_on_with(line);
  __ptrace_syscall_info call = {};
  // It waits in a read of stdin, which begins again, or is about to.
  bool lives = true;
  do {
    lives = go_to_next(pid, &call);
  } while (lives && !(call.op == PTRACE_SYSCALL_INFO_ENTRY && reads_stdin(call)));
  int count = 0;
  while (lives && (lives = go_to_next(pid, &call))) {
    if (call.op != PTRACE_SYSCALL_INFO_ENTRY) continue;
    if (reads_stdin(call)) break;
    ++count;
  }
  trace(PTRACE_DETACH, pid, 0, 0L);
  EXPECT_TRUE(lives) << "the program ended";
  return lives ? count : -1;
}

}  // namespace fracgpu::test
