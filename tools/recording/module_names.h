// What one module's file on the disk, and its debugging information, say of an address. Used within
// the child of symbolizer.h: a file that is damaged in a way that nobody foresaw ends it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tools/recording/debug_files.h"
#include "tools/recording/debug_lines.h"
#include "tools/recording/event.h"
#include "tools/recording/symbol_table.h"
#include "tools/recording/symbols.h"

namespace fracgpu::recording {

class ModuleNames {
 public:
  // Without `debug` symbol tables alone are read.
  ModuleNames(const ModuleInfo& module, const std::vector<std::string>& roots, bool debug);

  // The innermost first; none where nothing names it.
  std::vector<Place> at(uint64_t address);

 private:
  ElfFile own_, debug_;
  SymbolTable symbols_{};
  std::unique_ptr<DebugLines> lines_{};
};

}  // namespace fracgpu::recording
