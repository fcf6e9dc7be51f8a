// Texts and names as a person may be shown them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace fracgpu::tools {

// A text of at most `size` bytes from a file that others may write. What could steer a terminal, or
// is not ASCII, becomes '?'.
std::string clean(const char* text, size_t size);

// What the kernel calls a process of this PID namespace; "?" where that cannot be seen.
std::string command_of(uint32_t pid);

// The user's name, or the number where there is none.
std::string user_name(uint32_t uid);

}  // namespace fracgpu::tools
