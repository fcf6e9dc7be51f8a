// Files that containers are given: changed by root alone, and never half written.
#pragma once

#include <string>

namespace fracgpu::tools::cdi {

// Throws unless `path` is a regular file that only root can change.
void check_trusted(const std::string& path);

// Puts a file of this text at `path` by rename, for all to read, with the folders it needs. Throws.
void install_file(const std::string& path, const std::string& text);

}  // namespace fracgpu::tools::cdi
