// Texts and names in a form that is safe to print.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace fracgpu::tools {

// A text of at most `size` bytes from a file that others may write. Characters that could control a
// terminal, or are not ASCII, become '?'.
std::string clean(const char* text, size_t size);

// The kernel's name of a process in this PID namespace; "?" if it is not visible.
std::string command_of(uint32_t pid);

// The user's name, or the number if there is no name.
std::string user_name(uint32_t uid);

}  // namespace fracgpu::tools
