// The host's stderr, which may be anything: a terminal, a pipe without a reader, a data file.
#pragma once

#include <cstddef>

namespace fracgpu {

// Remembers what descriptor 2 is, unless it did so before: one system call. For the constructor.
void remember_stderr();

// Writes `bytes` in one attempt, or drops them. Neither blocks nor raises a signal, whatever the
// descriptor is. If the program has opened something else as descriptor 2 after its start, that may
// be a data file or a connection: then nothing is written, unless it is a terminal.
void write_to_stderr(const char* bytes, size_t size);

}  // namespace fracgpu
