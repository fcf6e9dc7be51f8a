// One byte of a file as the kernel's lock calls want it.
#pragma once

#include <fcntl.h>

#include <cstdint>

namespace fracgpu {

inline struct flock byte_lock(short type, int64_t offset) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = offset;
  lock.l_len = 1;
  return lock;
}

}  // namespace fracgpu
