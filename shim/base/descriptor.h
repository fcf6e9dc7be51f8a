// The library's own descriptors, in a process that knows nothing of them, and the calls on them.
//
// A program may have closed its standard streams and still write to them, and it may dup2() to any
// small number. So none of our descriptors is ever among the first three, and each is moved away
// from small numbers at once. All are close-on-exec. Linux opens no file at a given number, so a
// race is left: if another thread closes a standard stream meanwhile, ours has its number until it
// is moved, and if another thread calls dup2() to our number meanwhile, we close the program's.
//
// These are the system calls themselves. The C library's functions of the same names are
// cancellation points: a thread that is cancelled in a hook would never give back its locks.
// (tests/gates/cancellation_points.sh)
#pragma once

#include <fcntl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace fracgpu {

// Like openat and open. -1 with errno.
int open_own_at(int folder, const char* path, int flags, mode_t mode = 0);
inline int open_own(const char* path, int flags, mode_t mode = 0) {
  return open_own_at(AT_FDCWD, path, flags, mode);
}

// An epoll instance. -1 with errno.
int open_own_epoll();

// Whether no descriptor can be had now, because the process or the system has reached its limit.
bool no_descriptor_is_free();

// Leaves errno alone.
void close_own(int fd);

inline ssize_t read_own(int fd, void* bytes, size_t size) {
  return syscall(SYS_read, fd, bytes, size);
}
inline ssize_t read_own_at(int fd, void* bytes, size_t size, off_t offset) {
  return syscall(SYS_pread64, fd, bytes, size, offset);
}
inline ssize_t write_own(int fd, const void* bytes, size_t size) {
  return syscall(SYS_write, fd, bytes, size);
}
inline ssize_t write_own_at(int fd, const void* bytes, size_t size, off_t offset) {
  return syscall(SYS_pwrite64, fd, bytes, size, offset);
}

}  // namespace fracgpu
