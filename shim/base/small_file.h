// Reading a file that the kernel makes up, in /proc or /sys: all of it at once, without the heap.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstddef>

namespace fracgpu {

// Up to `size` - 1 bytes, with a NUL behind them. How many, or -1 with errno.
inline ssize_t read_small_file(const char* path, char* buffer, size_t size) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  const ssize_t got = ::read(fd, buffer, size - 1);
  const int error = errno;
  ::close(fd);
  errno = error;
  buffer[got > 0 ? got : 0] = '\0';
  return got;
}

}  // namespace fracgpu
