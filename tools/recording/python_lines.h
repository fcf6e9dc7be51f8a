// The lines at which Python's functions begin, from their source: perf's names have no line.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace fracgpu::recording {

class PythonLines {
 public:
  // `roots`: folders that are searched before a file's own path.
  explicit PythonLines(std::vector<std::string> roots) : roots_(std::move(roots)) {}

  // The number of the `def` line of this function in this file. The name is as in Model.forward or
  // main.<locals>.step. 0 if the file does not exist or has no such function.
  int line_of(const std::string& file, const std::string& function);

 private:
  std::vector<std::string> roots_;
  std::map<std::string, std::map<std::string, int>> known_;  // by file, by function
};

}  // namespace fracgpu::recording
