// Names of code that a process compiled at run time, from the file in which such programs list them
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
  // `pid`: the PID in this /proc; `own_pid`: the PID that the process itself sees, which names the
  // file.
  JitNames(uint32_t pid, uint32_t own_pid);

  // The function at an address; empty if nothing names it. Reads new lines of the file.
  std::string name_at(uint64_t address);

 private:
  struct Function {
    uint64_t size = 0;
    std::string name;
  };
  const Function* find(uint64_t address) const;
  void read_more();

  std::string own_path_, path_;
  uint64_t read_ = 0;  // bytes of the file
  std::map<uint64_t, Function> functions_;
};

}  // namespace fracgpu::tools
