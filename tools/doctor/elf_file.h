// Describes an executable or a library on disk by its ELF headers. Nothing in them is trusted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fracgpu::tools {

struct ElfFile {
  bool is_elf = false;
  bool is_64_bit = false;
  uint16_t machine = 0;       // EM_X86_64, …
  std::string interpreter{};  // the dynamic linker it requests; empty: static, or a library
  std::vector<std::string> needed{};
  std::string glibc{};  // the highest version that it needs, "2.31"; empty if it needs none

  std::string architecture() const;  // "x86-64"
  bool wants_musl() const { return interpreter.find("ld-musl") != interpreter.npos; }
};

// All fields are empty if the file cannot be read or is not an ELF file. For 32-bit and foreign
// files, only the first fields are set.
ElfFile read_elf(const std::string& path);

// Whether version `a`, as "2.31", is above `b`.
bool is_newer(const std::string& a, const std::string& b);

}  // namespace fracgpu::tools
