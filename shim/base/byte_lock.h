// One byte of a file, in the form of the kernel's lock calls.
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

// Whether an open file description other than `fd`'s has locked the byte.
inline bool byte_is_locked(int fd, int64_t offset) {
  struct flock lock = byte_lock(F_WRLCK, offset);
  return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace fracgpu
