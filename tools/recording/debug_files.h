// Finds the files that describe a module's addresses: the module itself, and its separate debugging
// information, if any. A file counts as the module's only if its build id matches.
#pragma once

#include <libelf.h>

#include <string>
#include <utility>
#include <vector>

#include "tools/recording/event.h"

namespace fracgpu::recording {

// An open ELF file, or none.
class ElfFile {
 public:
  ElfFile() = default;
  explicit ElfFile(const std::string& path);
  ~ElfFile() { elf_end(elf_); }
  ElfFile(ElfFile&& other) noexcept : elf_(std::exchange(other.elf_, nullptr)) {}
  ElfFile& operator=(ElfFile&& other) noexcept {
    std::swap(elf_, other.elf_);
    return *this;
  }

  explicit operator bool() const { return elf_ != nullptr; }
  Elf* elf() const { return elf_; }
  std::string build_id() const;  // hexadecimal; empty: none

 private:
  Elf* elf_ = nullptr;
};

// None if the file does not exist or has another build id.
ElfFile find_module(const ModuleInfo& module, const std::vector<std::string>& roots);

// The debugging information of this build: below the roots, below /usr/lib/debug, then from
// debuginfod-find, if DEBUGINFOD_URLS is set.
ElfFile find_debug_file(const std::string& build_id, const std::vector<std::string>& roots);

}  // namespace fracgpu::recording
