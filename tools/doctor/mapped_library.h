// The library in a process, if it is there.
#pragma once

#include <fstream>
#include <string>

#include "tools/launch/launch_tree.h"

namespace fracgpu::tools {

// Where the library that is mapped into a process came from, with " (deleted)" behind it when the
// file is no longer there; empty when none is mapped. `process`: a PID, or this one.
inline std::string mapped_library(const std::string& process = "self") {
  std::ifstream maps("/proc/" + process + "/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find('/');
    if (path == line.npos) continue;
    const size_t name = line.rfind('/') + 1;
    if (line.substr(name).starts_with(kLibrary)) return line.substr(path);
  }
  return {};
}

}  // namespace fracgpu::tools
