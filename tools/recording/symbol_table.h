// The functions in a file's own symbol tables: all of them (.symtab), or in a stripped file the
// exported ones (.dynsym).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/recording/debug_files.h"

namespace fracgpu::recording {

class SymbolTable {
 public:
  // Added files must stay open.
  void add(const ElfFile& file);
  void sort();

  // The linker's name; empty if the address is in no function.
  std::string at(uint64_t address) const;

 private:
  struct Symbol {
    uint64_t address = 0, size = 0;  // size 0: not known, as in assembly
    bool global = false;
    const char* name = nullptr;
  };
  std::vector<Symbol> symbols_{};
};

}  // namespace fracgpu::recording
