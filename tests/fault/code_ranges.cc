// Reads the program's own symbol table; see code_ranges.h.
#include "tests/fault/code_ranges.h"

#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

namespace fracgpu::fault {
namespace {

uint64_t load_address() {
  uint64_t base = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        *static_cast<uint64_t*>(out) = info->dlpi_addr;
        return 1;  // the program itself comes first
      },
      &base);
  return base;
}

std::string demangled(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 ? text : "";
  free(text);
  return result;
}

bool is_of_ledger(const std::string& name) {
  for (const char* part : {"fracgpu::Ledger::", "fracgpu::LedgerFile::", "fracgpu::GrowLock::",
                           "fracgpu::(anonymous namespace)::"}) {
    if (name.rfind(part, 0) == 0) return true;
    // A function template's name begins with its return type.
    if (name.find(std::string(" ") + part) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

LedgerCode::LedgerCode() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  Elf64_Ehdr header;
  if (bytes.size() < sizeof header) return;
  memcpy(&header, bytes.data(), sizeof header);
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  memcpy(sections.data(), bytes.data() + header.e_shoff, sections.size() * sizeof(Elf64_Shdr));
  const uint64_t base = load_address();
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_SYMTAB) continue;
    const char* names = bytes.data() + sections[section.sh_link].sh_offset;
    for (uint64_t at = 0; at < section.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      memcpy(&symbol, bytes.data() + section.sh_offset + at, sizeof symbol);
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_size == 0) continue;
      if (!is_of_ledger(demangled(names + symbol.st_name))) continue;
      ranges_.push_back({base + symbol.st_value, base + symbol.st_value + symbol.st_size});
    }
  }
  std::sort(ranges_.begin(), ranges_.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
}

bool LedgerCode::contains(uint64_t address) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), address,
                       [](uint64_t value, const Range& range) { return value < range.begin; });
  return after != ranges_.begin() && address < std::prev(after)->end;
}

}  // namespace fracgpu::fault
