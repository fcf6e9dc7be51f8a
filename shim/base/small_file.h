// Reads a file that the kernel generates, in /proc or /sys: all of it at once, without the heap.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstddef>

#include "shim/base/descriptor.h"

namespace fracgpu {

// Reads up to `size` - 1 bytes, with a NUL behind them. Returns how many, or -1 with errno.
inline ssize_t read_small_file(const char* path, char* buffer, size_t size) {
  const int fd = open_own(path, O_RDONLY);
  if (fd < 0) return -1;
  const ssize_t got = read_own(fd, buffer, size - 1);
  close_own(fd);
  buffer[got > 0 ? got : 0] = '\0';
  return got;
}

}  // namespace fracgpu
