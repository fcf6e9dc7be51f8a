// Making a file, in /dev/shm as a rule, that several processes share.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace fracgpu {

inline constexpr mode_t kSharedFileMode = 0666;  // those who share it may be different users
inline constexpr size_t kLongestSharedPath = 256;

struct SharedFileSize {
  size_t whole;   // bytes
  size_t backed;  // of those, from the start, that have memory at once
};

// Gives a new file its name: `header` at its start, zeros behind, writable for everybody. It is
// complete before it has the name, so no process ever sees half a header. A maker that dies leaves
// nothing, or, on a file system without unnamed files, "<path>.<16 hexadecimal digits>.new". 0, or
// an errno; EEXIST when another process was faster, ENAMETOOLONG for a path longer than the above.
int make_shared_file(const char* path, SharedFileSize size, const void* header, size_t header_size);

// Gives a part of a file memory, so that to touch it through a mapping is no SIGBUS in a full
// /dev/shm. Bytes that are there stay. 0, or an errno. No other process may write to the part
// meanwhile: file systems without such a call are written to.
int back_shared_file(int fd, size_t offset, size_t size);

}  // namespace fracgpu
