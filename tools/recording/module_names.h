// Names an address by a module's file on the disk and its debugging information. Used within the
// child of symbolizer.h: unforeseen damage of a file ends that child.
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
  // Without `debug`, only symbol tables are read.
  ModuleNames(const ModuleInfo& module, const std::vector<std::string>& roots, bool debug);

  // The innermost first; none if nothing names the address.
  std::vector<Place> at(uint64_t address);

 private:
  ElfFile own_, debug_;
  SymbolTable symbols_{};
  std::unique_ptr<DebugLines> lines_{};
};

}  // namespace fracgpu::recording
