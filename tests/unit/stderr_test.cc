// A line never harms the host, whatever its descriptor 2 is.
#include "shim/base/stderr.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>

#include <string>

#include "tests/unit/child.h"

namespace fracgpu {
namespace {

constexpr char kLine[] = "a line\n";

void say() {
  write_to_stderr(kLine, sizeof kLine - 1);
}

// Makes `fd` descriptor 2, as before the start of a program.
void start_with(int fd) {
  dup2(fd, STDERR_FILENO);
  if (fd != STDERR_FILENO) close(fd);
  remember_stderr();
}

std::string all_of(int fd) {
  char text[256] = {};
  fcntl(fd, F_SETFL, O_NONBLOCK);
  const ssize_t size = read(fd, text, sizeof text);
  return {text, size > 0 ? static_cast<size_t>(size) : 0};
}

void fill(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  char bytes[4096] = {};
  while (write(fd, bytes, sizeof bytes) > 0) {
  }
  while (write(fd, bytes, 1) > 0) {
  }
  fcntl(fd, F_SETFL, flags);
}

int unnamed_file() {
  char name[] = "/tmp/stderr-test-XXXXXX";
  const int fd = mkstemp(name);
  unlink(name);
  return fd;
}

// Every test is a child that returns 0, or the number of the check that failed; a signal is -1, and
// one that blocks is ended by its alarm.

TEST(StderrTest, APipeGetsTheLineAndKeepsItsFlags) {
  EXPECT_EQ(status_of_child([] {
              int ends[2];
              if (pipe(ends) != 0) return 1;
              start_with(ends[1]);
              say();
              if (all_of(ends[0]) != kLine) return 2;
              return (fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK) == 0 ? 0 : 3;
            }),
            0);
}

TEST(StderrTest, APipeThatNobodyReadsRaisesNothing) {
  EXPECT_EQ(status_of_child([] {
              int ends[2];
              if (pipe(ends) != 0) return 1;
              start_with(ends[1]);
              close(ends[0]);
              say();
              sigset_t pending;
              sigpending(&pending);
              return sigismember(&pending, SIGPIPE);
            }),
            0);
}

TEST(StderrTest, AFullPipeDoesNotBlock) {
  EXPECT_EQ(status_of_child([] {
              int ends[2];
              if (pipe(ends) != 0) return 1;
              start_with(ends[1]);
              fill(STDERR_FILENO);
              alarm(10);
              say();
              return 0;
            }),
            0);
}

TEST(StderrTest, SocketsNeitherBlockNorRaise) {
  for (const bool closed : {false, true}) {
    EXPECT_EQ(status_of_child([closed] {
                int ends[2];
                if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 1;
                start_with(ends[1]);
                say();
                if (all_of(ends[0]) != kLine) return 2;
                if (closed) close(ends[0]);
                if (!closed) fill(STDERR_FILENO);
                alarm(10);
                say();
                return 0;
              }),
              0)
        << closed;
  }
}

TEST(StderrTest, AFileOfTheStartGetsTheLineBehindWhatIsThere) {
  EXPECT_EQ(status_of_child([] {
              const int file = unnamed_file();
              const int reader = dup(file);
              start_with(file);
              if (write(STDERR_FILENO, "x", 1) != 1) return 1;
              say();
              char text[16] = {};
              if (pread(reader, text, sizeof text, 0) != sizeof kLine) return 2;
              return strcmp(text, "xa line\n") == 0 ? 0 : 3;
            }),
            0);
}

// A program that closed its stderr gets descriptor 2 for the next thing that it opens.
TEST(StderrTest, WhatIsOpenedLaterAsDescriptorTwoIsLeftAlone) {
  for (const bool was_open : {false, true}) {
    EXPECT_EQ(status_of_child([was_open] {
                int ends[2];
                if (!was_open) close(STDERR_FILENO);
                remember_stderr();
                dup2(unnamed_file(), STDERR_FILENO);
                say();
                if (lseek(STDERR_FILENO, 0, SEEK_END) != 0) return 1;
                if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 2;
                dup2(ends[1], STDERR_FILENO);
                say();
                return all_of(ends[0]).empty() ? 0 : 3;
              }),
              0)
        << was_open;
  }
}

TEST(StderrTest, AClosedDescriptorIsNoError) {
  EXPECT_EQ(status_of_child([] {
              close(STDERR_FILENO);
              say();
              return 0;
            }),
            0);
}

TEST(StderrTest, ALimitOfFileSizesRaisesNothing) {
  EXPECT_EQ(status_of_child([] {
              start_with(unnamed_file());
              const rlimit none = {.rlim_cur = 0, .rlim_max = RLIM_INFINITY};
              if (setrlimit(RLIMIT_FSIZE, &none) != 0) return 1;
              say();
              return 0;
            }),
            0);
}

TEST(StderrTest, ASignalThatWasPendingStaysSo) {
  EXPECT_EQ(status_of_child([] {
              int ends[2];
              if (pipe(ends) != 0) return 1;
              start_with(ends[1]);
              close(ends[0]);
              sigset_t pipes, pending;
              sigemptyset(&pipes);
              sigaddset(&pipes, SIGPIPE);
              sigprocmask(SIG_BLOCK, &pipes, nullptr);
              raise(SIGPIPE);
              say();
              sigpending(&pending);
              return sigismember(&pending, SIGPIPE) == 1 ? 0 : 2;
            }),
            0);
}

// `tostop` stops a background job that writes; output that is stopped (Ctrl-S) blocks it.
TEST(StderrTest, ATerminalNeitherStopsNorBlocksAJob) {
  EXPECT_EQ(status_of_child([] {
              int terminal = -1, job_terminal = -1;
              if (openpty(&terminal, &job_terminal, nullptr, nullptr, nullptr) != 0) return 1;
              termios modes = {};
              tcgetattr(job_terminal, &modes);
              modes.c_lflag |= TOSTOP;
              tcsetattr(job_terminal, TCSANOW, &modes);
              const pid_t shell = fork();
              if (shell == 0) {
                alarm(20);
                if (login_tty(job_terminal) != 0) _exit(1);
                const pid_t job = fork();
                if (job == 0) {
                  alarm(10);
                  setpgid(0, 0);  // in the background, since the terminal is the shell's
                  signal(SIGTTOU, SIG_DFL);
                  say();
                  signal(SIGTTOU, SIG_IGN);
                  tcflow(STDERR_FILENO, TCOOFF);
                  signal(SIGTTOU, SIG_DFL);
                  say();
                  signal(SIGTTOU, SIG_IGN);
                  tcflow(STDERR_FILENO, TCOON);  // valgrind writes what stdio holds at the end
                  _exit(0);
                }
                int status = 0;
                if (waitpid(job, &status, WUNTRACED) != job) _exit(2);
                _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 3);
              }
              int status = 0;
              if (waitpid(shell, &status, 0) != shell || !WIFEXITED(status)) return 4;
              if (WEXITSTATUS(status) != 0) return 5;
              return all_of(terminal).find("a line") != std::string::npos ? 0 : 6;
            }),
            0);
}

}  // namespace
}  // namespace fracgpu
