// Makes a file that several processes share, usually in /dev/shm.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace fracgpu {

inline constexpr mode_t kSharedFileMode = 0666;  // different users may share it
inline constexpr size_t kLongestSharedPath = 256;

struct SharedFileSize {
  size_t whole;   // bytes
  size_t backed;  // of them, from the start, that get memory at once
};

// Gives a new file its name: `header` at its start, zeros behind, writable for everybody. The file
// is complete before it has the name, so no process ever sees half a header. If the maker dies,
// nothing remains. On a file system without unnamed files, "<path>.<16 hexadecimal digits>.new" may
// remain. 0, or an errno; EEXIST if another process was faster, ENAMETOOLONG for a path longer than
// the above.
int make_shared_file(const char* path, SharedFileSize size, const void* header, size_t header_size);

// Gives a part of a file memory, so that access through a mapping is no SIGBUS in a full /dev/shm.
// Existing bytes stay. 0, or an errno. No other process may write to the part meanwhile: on file
// systems without such a call, this writes to it.
int back_shared_file(int fd, size_t offset, size_t size);

}  // namespace fracgpu
