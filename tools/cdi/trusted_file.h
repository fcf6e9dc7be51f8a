// Files that containers get: only root can change them, and they are never half written.
#pragma once

#include <string>

namespace fracgpu::tools::cdi {

// Throws unless `path` is a regular file that only root can change.
void check_trusted(const std::string& path);

// Writes a file with this text to `path` by rename, readable for all, and makes the folders that it
// needs. Throws.
void install_file(const std::string& path, const std::string& text);

}  // namespace fracgpu::tools::cdi
