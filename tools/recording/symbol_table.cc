#include "tools/recording/symbol_table.h"

#include <gelf.h>

#include <algorithm>

namespace fracgpu::recording {

void SymbolTable::add(const ElfFile& file) {
  if (!file) return;
  for (Elf_Scn* section = nullptr; (section = elf_nextscn(file.elf(), section)) != nullptr;) {
    GElf_Shdr header;
    if (gelf_getshdr(section, &header) == nullptr || header.sh_entsize == 0) continue;
    if (header.sh_type != SHT_SYMTAB && header.sh_type != SHT_DYNSYM) continue;
    Elf_Data* const data = elf_getdata(section, nullptr);
    GElf_Sym symbol;
    for (int i = 0; data != nullptr && gelf_getsym(data, i, &symbol) != nullptr; ++i) {
      const int type = GELF_ST_TYPE(symbol.st_info);
      const bool function = type == STT_FUNC || type == STT_GNU_IFUNC;
      if (!function || symbol.st_shndx == SHN_UNDEF || symbol.st_value == 0) continue;
      const char* const name = elf_strptr(file.elf(), header.sh_link, symbol.st_name);
      if (name == nullptr || *name == '\0') continue;
      const bool global = GELF_ST_BIND(symbol.st_info) == STB_GLOBAL;
      symbols_.push_back({symbol.st_value, symbol.st_size, global, name});
    }
  }
}

void SymbolTable::sort() {
  // Among several names of one function, the last one counts. It is a global name, if there is one.
  std::stable_sort(symbols_.begin(), symbols_.end(), [](const Symbol& a, const Symbol& b) {
    return a.address != b.address ? a.address < b.address : a.global < b.global;
  });
}

std::string SymbolTable::at(uint64_t address) const {
  const auto after =
      std::upper_bound(symbols_.begin(), symbols_.end(), address,
                       [](uint64_t wanted, const Symbol& each) { return wanted < each.address; });
  if (after == symbols_.begin()) return "";
  const Symbol& symbol = *std::prev(after);
  const bool inside = symbol.size == 0 || address - symbol.address < symbol.size;
  return inside ? symbol.name : "";
}

}  // namespace fracgpu::recording
