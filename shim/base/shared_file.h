// Making a file, in /dev/shm as a rule, that several processes share.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace fracgpu {

inline constexpr mode_t kSharedFileMode = 0666;  // those who share it may be different users
inline constexpr size_t kLongestSharedPath = 256;

// Gives a new file of `size` bytes its name: `header` at its start, zeros behind, writable for
// everybody. It is complete before it has the name, so no process ever sees half a header. A maker
// that dies leaves nothing, or, on a file system without unnamed files, "<path>.<16 hexadecimal
// digits>.new". All space is allocated at once, because a full /dev/shm would otherwise be a SIGBUS
// later. 0, or an errno; EEXIST when another process was faster, ENAMETOOLONG for a path longer
// than the above.
int make_shared_file(const char* path, size_t size, const void* header, size_t header_size);

}  // namespace fracgpu
