// Finds the library in a process.
#pragma once

#include <fstream>
#include <string>

#include "tools/launch/launch_tree.h"

namespace fracgpu::tools {

// The path of the library that is mapped into a process, with " (deleted)" after it if the file no
// longer exists; empty if none is mapped. `process` is a PID, or "self" for this process.
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
