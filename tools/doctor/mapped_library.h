// The library in this process, if it is here.
#pragma once

#include <fstream>
#include <string>

#include "tools/launch_tree.h"

namespace fracgpu::tools {

// Where the library that is mapped into this process came from, with " (deleted)" behind it when
// the file is no longer there; empty when none is mapped.
inline std::string mapped_library() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find('/');
    if (path == line.npos) continue;
    const size_t name = line.rfind('/') + 1;
    if (line.substr(name).starts_with(kLibrary)) return line.substr(path);
  }
  return {};
}

}  // namespace fracgpu::tools
