// Files that somebody else may have put in the place where one is expected.
#pragma once

#include <string>

#include "tools/cli/descriptor.h"

namespace fracgpu::tools {

enum class Links { refused, followed };

// Opens a regular file and nothing else: never waits, as for the other end of a FIFO, and touches
// no device. `access` is O_RDONLY or O_RDWR. Throws std::runtime_error with one line that says what
// is there instead, and whose it is.
Descriptor open_judged(const std::string& path, int access, Links links = Links::refused);

// At most so many bytes of such a file; empty where it cannot be had.
std::string read_judged(const std::string& path, size_t most, Links links);

}  // namespace fracgpu::tools
