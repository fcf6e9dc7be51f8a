// DWARF debugging information for an address: the function, the functions that the compiler inlined
// into it there, and the lines.
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
  explicit DebugLines(const ElfFile& file);  // `file` must stay open
  ~DebugLines() { dwarf_end(dwarf_); }
  DebugLines(const DebugLines&) = delete;
  DebugLines& operator=(const DebugLines&) = delete;

  // The innermost first, by their linker names. The name is empty if only a line is known.
  std::vector<Place> at(uint64_t address);

 private:
  struct Function {
    uint64_t begin = 0, end = 0;
    Dwarf_Die die{};
  };
  // The code of one source file. Its functions are listed at the first query, because a large
  // library has thousands of units.
  struct Unit {
    Dwarf_Die root{};     // for the lines
    Dwarf_Die content{};  // for the functions; differs if these are in a separate file
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
