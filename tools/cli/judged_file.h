// Files whose place another user may have filled with something else.
#pragma once

#include <string>

#include "tools/cli/descriptor.h"

namespace fracgpu::tools {

enum class Links { refused, followed };

// Opens a regular file and nothing else: never waits, as it would for the other end of a FIFO, and
// touches no device. `access` is O_RDONLY or O_RDWR. Throws std::runtime_error with one line that
// describes the other file and its owner.
Descriptor open_judged(const std::string& path, int access, Links links = Links::refused);

// Reads at most `most` bytes of such a file; empty if it cannot be opened.
std::string read_judged(const std::string& path, size_t most, Links links);

}  // namespace fracgpu::tools
