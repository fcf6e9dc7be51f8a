// Reads a file of /proc straight from the kernel: this may be called while the functions of the C
// library are the simulator's own.
#pragma once

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

namespace rmsim {

// The file's beginning as text; empty if it cannot be read.
template <size_t kSize>
void read_proc_file(const char* path, char (&text)[kSize]) {
  const int fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC));
  const ssize_t length = fd >= 0 ? syscall(SYS_read, fd, text, kSize - 1) : 0;
  if (fd >= 0) syscall(SYS_close, fd);
  text[length > 0 ? length : 0] = '\0';
}

}  // namespace rmsim
