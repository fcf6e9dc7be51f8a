// Reading code objects, which come from the program and may be anything.
#include "sim/hsa/elf.h"

#include <elf.h>

#include <algorithm>
#include <cstring>

namespace sim {
namespace {

class File {
 public:
  File(const uint8_t* data, size_t bytes) : data_(data), bytes_(bytes) {}
  bool holds(uint64_t offset, uint64_t length) const {
    return offset <= bytes_ && length <= bytes_ - offset;
  }
  template <typename Record>
  bool read(uint64_t offset, Record* out) const {
    if (!holds(offset, sizeof *out)) return false;
    std::memcpy(out, data_ + offset, sizeof *out);
    return true;
  }
  std::string text(uint64_t offset) const {
    std::string found;
    while (offset < bytes_ && data_[offset] != 0) found += static_cast<char>(data_[offset++]);
    return found;
  }

 private:
  const uint8_t* data_;
  size_t bytes_;
};

bool read_symbols(const File& file, const Elf64_Shdr& table, uint64_t names, CodeObject* out) {
  for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= table.sh_size; at += sizeof(Elf64_Sym)) {
    Elf64_Sym symbol;
    if (!file.read(table.sh_offset + at, &symbol)) return false;
    if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_shndx == SHN_UNDEF) continue;
    out->symbols.push_back({file.text(names + symbol.st_name), symbol.st_value, symbol.st_size});
  }
  return true;
}

}  // namespace

bool parse_code_object(const uint8_t* data, size_t bytes, CodeObject* out) {
  const File file(data, bytes);
  Elf64_Ehdr header;
  if (!file.read(0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64)
    return false;
  out->lowest = UINT64_MAX;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part;
    if (!file.read(header.e_phoff + i * sizeof part, &part)) return false;
    if (part.p_type != PT_LOAD) continue;
    if (!file.holds(part.p_offset, part.p_filesz) || part.p_filesz > part.p_memsz ||
        part.p_vaddr > UINT64_MAX / 2 || part.p_memsz > UINT64_MAX / 2)
      return false;
    out->segments.push_back({part.p_vaddr, part.p_offset, part.p_filesz, part.p_memsz});
    // The loader takes the last one's end for that of all.
    if (part.p_vaddr + part.p_memsz < out->end) return false;
    out->lowest = std::min(out->lowest, part.p_vaddr);
    out->end = part.p_vaddr + part.p_memsz;
  }
  if (out->segments.empty()) return false;
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr table, names;
    if (!file.read(header.e_shoff + i * sizeof table, &table)) return false;
    if (table.sh_type != SHT_DYNSYM) continue;
    if (!file.read(header.e_shoff + table.sh_link * sizeof names, &names) ||
        !read_symbols(file, table, names.sh_offset, out))
      return false;
  }
  return true;
}

}  // namespace sim
