// The host's stderr, which may be anything: a terminal, a pipe that nobody reads, a data file.
#pragma once

#include <cstddef>

namespace fracgpu {

// Remembers what descriptor 2 is, where it was not remembered before: one system call. For the
// constructor.
void remember_stderr();

// Writes `bytes` in one attempt, or drops them. Neither blocks nor raises a signal, whatever the
// descriptor is. What a program opened as descriptor 2 after it started may be a file of data or a
// connection: nothing is written there, unless it is a terminal.
void write_to_stderr(const char* bytes, size_t size);

}  // namespace fracgpu
