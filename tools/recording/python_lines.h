// Where Python's functions begin, by their source: perf's file names them without a line.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace fracgpu::recording {

class PythonLines {
 public:
  // `roots`: folders in which files are looked for before their own path.
  explicit PythonLines(std::vector<std::string> roots) : roots_(std::move(roots)) {}

  // Of the line with `def` of the function that is called this in this file, as Model.forward or
  // main.<locals>.step; 0 where the file is not there or has no such function.
  int line_of(const std::string& file, const std::string& function);

 private:
  std::vector<std::string> roots_;
  std::map<std::string, std::map<std::string, int>> known_;  // by file, by function
};

}  // namespace fracgpu::recording
