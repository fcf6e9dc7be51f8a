#include "shim/base/byte_source.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "shim/base/descriptor.h"

namespace fracgpu {

ByteSource ByteSource::in_file(int descriptor) {
  struct statx about;
  const bool known = statx(descriptor, "", AT_EMPTY_PATH, STATX_TYPE | STATX_SIZE, &about) == 0 &&
                     S_ISREG(about.stx_mode);
  return {descriptor, 0, known ? about.stx_size : 0};
}

ByteSource ByteSource::part(uint64_t offset, uint64_t bytes) const {
  offset = std::min(offset, bytes_);
  return {descriptor_, base_ + offset, std::min(bytes, bytes_ - offset)};
}

size_t ByteSource::read_some(uint64_t offset, void* out, size_t size) const {
  if (offset >= bytes_) return 0;
  size = std::min<uint64_t>(size, bytes_ - offset);
  uint64_t from = 0;
  if (__builtin_add_overflow(base_, offset, &from) || from > INT64_MAX - size) return 0;
  if (descriptor_ < 0) {
    memcpy(out, reinterpret_cast<const void*>(from), size);
    return size;
  }
  const ssize_t got = read_own_at(descriptor_, out, size, static_cast<off_t>(from));
  return got > 0 ? static_cast<size_t>(got) : 0;
}

}  // namespace fracgpu
