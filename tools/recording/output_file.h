// The file that a recording is written to. Others may read it meanwhile, and its content stays
// intact if the disk is full.
#pragma once

#include <cstdint>
#include <string>

#include "tools/cli/descriptor.h"

namespace fracgpu::recording {

class OutputFile {
 public:
  // See Writer. Throws std::runtime_error with one line.
  OutputFile(const std::string& path, bool force);

  // Appends all of the bytes, or none with an exception of one line.
  void append(const std::string& bytes);

 private:
  std::string path_;
  tools::Descriptor file_;
  uint64_t size_ = 0;
};

}  // namespace fracgpu::recording
