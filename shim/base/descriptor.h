// Descriptors of the library's own, in a process that knows nothing of them, and the calls that go
// with them.
//
// A program may have closed its standard streams and still write to them, and it may dup2() to any
// small number. So none of ours is ever among the first three, and each is moved out of the way of
// small numbers at once. (Who closes a standard stream while ours is opened may have it there until
// it is moved.) All are close-on-exec.
//
// These are the system calls themselves: the functions of the C library of the same names are
// cancellation points, and a thread that is cancelled in a hook would leave locks behind that
// nobody gives back. (tests/gates/cancellation_points.sh)
#pragma once

#include <fcntl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace fracgpu {

// As openat and open. -1 with errno.
int open_own_at(int folder, const char* path, int flags, mode_t mode = 0);
inline int open_own(const char* path, int flags, mode_t mode = 0) {
  return open_own_at(AT_FDCWD, path, flags, mode);
}

// Whether none can be had just now, because the process or the system has as many as it may.
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
