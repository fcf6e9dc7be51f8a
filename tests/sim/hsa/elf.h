// What the loader needs of a code object, which is an ELF file: its loadable segments and its
// dynamic symbols.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sim {

struct CodeObject {
  struct Segment {
    uint64_t address, offset, file_bytes, memory_bytes;
  };
  struct Symbol {
    std::string name;
    uint64_t address, bytes;
  };
  std::vector<Segment> segments;
  std::vector<Symbol> symbols;   // defined objects: variables, and kernels' descriptors
  uint64_t lowest = 0, end = 0;  // of the segments' addresses
};

// False for what is no such file, or has parts outside itself.
bool parse_code_object(const uint8_t* data, size_t bytes, CodeObject* out);

}  // namespace sim
