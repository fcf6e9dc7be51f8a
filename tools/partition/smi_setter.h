// Changes modes of partitioning through libamd_smi, which must be of ROCm 6.4 or later: earlier
// ones have no profiles and other numbers for the modes. The library is opened anew for each
// change, because every change makes its handles invalid.
#pragma once

#include <cstdint>
#include <string>

#include "tools/machine/amd_partitions.h"

namespace fracgpu::tools {

class SmiSetter {
 public:
  // Throws std::runtime_error with one line, as all functions here do.
  SmiSetter();
  ~SmiSetter();
  SmiSetter(const SmiSetter&) = delete;
  SmiSetter& operator=(const SmiSetter&) = delete;

  void set_compute(const Board& board, const std::string& mode);
  // Sets the memory mode, and has the library reload the kernel driver if the library still does
  // that. ROCm 6.4 reloads it by itself, 7 by a call of its own, and 10 leaves that to modprobe.
  void set_memory(const Board& board, const std::string& mode);

 private:
  template <typename... Parameters>
  int call(const char* name, Parameters... arguments) const;
  void* handle_of(const Board& board) const;
  uint32_t profile_of(void* device, const Board& board, const std::string& mode) const;

  void* library_ = nullptr;
};

}  // namespace fracgpu::tools
