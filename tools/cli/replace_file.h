// Files that others read while they are rewritten.
#pragma once

#include <string>

namespace fracgpu::tools {

// Puts a file with this text at `path` by a rename, readable for all. A reader finds either the old
// or the new file, complete. Throws std::runtime_error with one line.
void replace_file(const std::string& path, const std::string& text);

// The same with a temporary file of this name, which must not exist yet.
void replace_file(const std::string& path, const std::string& text, const std::string& fresh);

}  // namespace fracgpu::tools
