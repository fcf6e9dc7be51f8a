// Files that others read while they are written anew.
#pragma once

#include <string>

namespace fracgpu::tools {

// Puts a file of this text at `path` by a rename, for all to read: a reader finds the old one or
// the new one, whole. Throws std::runtime_error with one line.
void replace_file(const std::string& path, const std::string& text);

// The same by a temporary of this name, which must not be there yet.
void replace_file(const std::string& path, const std::string& text, const std::string& fresh);

}  // namespace fracgpu::tools
