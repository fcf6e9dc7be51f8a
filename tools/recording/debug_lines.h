// What DWARF debugging information says of an address: the function, those that the compiler has
// put into it there, and the lines.
#pragma once

#include <elfutils/libdw.h>

#include <cstdint>
#include <vector>

#include "tools/recording/debug_files.h"
#include "tools/recording/symbols.h"

namespace fracgpu::recording {

bool has_debug_lines(const ElfFile& file);

class DebugLines {
 public:
  explicit DebugLines(const ElfFile& file);  // which must stay open
  ~DebugLines() { dwarf_end(dwarf_); }
  DebugLines(const DebugLines&) = delete;
  DebugLines& operator=(const DebugLines&) = delete;

  // The innermost first, by the names that linkers know; an empty one where there is but a line.
  std::vector<Place> at(uint64_t address);

 private:
  struct Function {
    uint64_t begin = 0, end = 0;
    Dwarf_Die die{};
  };
  // What one source file was compiled to. Its functions are listed when it is first asked for: a
  // large library has thousands of them.
  struct Unit {
    Dwarf_Die root{};     // of the lines
    Dwarf_Die content{};  // of the functions; another one where these lie in a file apart
    bool listed = false;
    std::vector<Function> functions{};
  };
  struct Range {
    uint64_t begin = 0, end = 0;
    size_t unit = 0;
  };

  static void list_functions(Dwarf_Die& parent, int depth, std::vector<Function>& functions);
  Unit* unit_at(uint64_t address);

  Dwarf* dwarf_ = nullptr;
  std::vector<Unit> units_{};
  std::vector<Range> ranges_{};
};

}  // namespace fracgpu::recording
