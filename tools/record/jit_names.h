// Names of code that a process made at run time, by the file in which such programs say them
// (/tmp/perf-PID.map, which Linux's perf reads): CPython 3.12 and later with -X perf, node with
// --perf-basic-prof, and others.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace fracgpu::tools {

class JitNames {
 public:
  JitNames() = default;
  // `pid`: as /proc here has it; `own_pid`: as the process knows itself, and names its file.
  JitNames(uint32_t pid, uint32_t own_pid);

  // The function at an address; empty where nothing names it. Reads what is new in the file.
  std::string name_at(uint64_t address);

 private:
  struct Function {
    uint64_t size = 0;
    std::string name;
  };
  const Function* find(uint64_t address) const;
  void read_more();

  std::string own_path_, path_;
  uint64_t read_ = 0;  // bytes of it
  std::map<uint64_t, Function> functions_;
};

}  // namespace fracgpu::tools
