// Device code for programs that load some: files of no more than headers, which say how much memory
// is to be made for them.
#pragma once

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <string>

namespace client {

template <typename Item>
void append(std::string& image, const Item& item) {
  image.append(reinterpret_cast<const char*>(&item), sizeof item);
}

inline Elf64_Ehdr elf_header(uint16_t machine) {
  Elf64_Ehdr header = {};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_DYN;
  header.e_machine = machine;
  header.e_version = EV_CURRENT;
  header.e_ehsize = sizeof header;
  return header;
}

// NVIDIA's, with a global variable of so many bytes, and so many of shared memory, which lie on no
// device.
inline std::string cubin(uint64_t bytes, uint64_t shared = 0) {
  constexpr uint16_t kCuda = 190;
  const std::string names("\0.nv.global\0.nv.shared.kernel\0.shstrtab", 40);
  constexpr uint32_t kGlobalName = 1, kSharedName = 12, kNamesName = 30;
  Elf64_Ehdr header = elf_header(kCuda);
  header.e_shoff = sizeof header + names.size();
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 4;
  header.e_shstrndx = 3;
  const auto section = [](uint32_t name, uint32_t type, uint64_t flags, uint64_t offset,
                          uint64_t size) {
    Elf64_Shdr made = {};
    made.sh_name = name;
    made.sh_type = type;
    made.sh_flags = flags;
    made.sh_offset = offset;
    made.sh_size = size;
    return made;
  };
  std::string image;
  append(image, header);
  image += names;
  append(image, Elf64_Shdr{});
  append(image, section(kGlobalName, SHT_NOBITS, SHF_ALLOC | SHF_WRITE, 0, bytes));
  append(image, section(kSharedName, SHT_NOBITS, SHF_ALLOC | SHF_WRITE, 0, shared));
  append(image, section(kNamesName, SHT_STRTAB, 0, sizeof header, names.size()));
  return image;
}

// A fatbin with two variants; the wrapper that a program is linked with points to such.
inline std::string fatbin(const std::string& first, const std::string& second) {
  struct Header {
    uint32_t magic = 0xba55ed50;
    uint16_t version = 1, bytes_of_header = sizeof(Header);
    uint64_t bytes = 0;
  } header;
  struct Entry {
    uint16_t kind = 2, version = 0x0101;
    uint32_t bytes_of_header = sizeof(Entry);
    uint64_t bytes = 0;
    uint64_t rest[6] = {};
  };
  std::string entries;
  for (const std::string& image : {first, second}) {
    Entry entry;
    entry.bytes = (image.size() + 7) / 8 * 8;
    append(entries, entry);
    entries += image + std::string(entry.bytes - image.size(), '\0');
  }
  header.bytes = entries.size();
  std::string image;
  append(image, header);
  return image + entries;
}

// AMD's for gfx90a, with one loadable segment of so many bytes, and what real loaders want beside
// it: notes that say that there are no kernels, and a table of sections.
inline std::string amd_code_object(uint64_t bytes) {
  constexpr uint16_t kAmdGpu = 224;
  constexpr unsigned char kAmdHsa = 64, kVersion4 = 2;
  constexpr uint32_t kGfx90a = 0x03f, kAnyXnack = 0x100, kAnySramEcc = 0x400;
  const std::string names("\0.shstrtab\0.strtab\0.symtab\0.note", 33);
  // MessagePack: {"amdhsa.kernels": [], "amdhsa.target": "amdgcn-amd-amdhsa--gfx90a",
  // "amdhsa.version": [1, 1]}
  std::string metadata =
      "\x83\xae"
      "amdhsa.kernels\x90\xad"
      "amdhsa.target\xb9"
      "amdgcn-amd-amdhsa--gfx90a\xae"
      "amdhsa.version\x92\x01\x01";
  struct {
    uint32_t name_bytes = 7, bytes = 0, type = 32;  // NT_AMDGPU_METADATA
    char name[8] = "AMDGPU";
  } note;
  note.bytes = static_cast<uint32_t>(metadata.size());
  metadata.resize((metadata.size() + 3) / 4 * 4);

  Elf64_Ehdr header = elf_header(kAmdGpu);
  header.e_ident[EI_OSABI] = kAmdHsa;
  header.e_ident[EI_ABIVERSION] = kVersion4;
  header.e_flags = kGfx90a | kAnyXnack | kAnySramEcc;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 2;
  Elf64_Phdr segment = {}, notes = {};
  notes.p_type = PT_NOTE;
  notes.p_flags = PF_R;
  notes.p_align = 4;
  notes.p_offset = notes.p_vaddr = notes.p_paddr = sizeof header + 2 * sizeof segment;
  notes.p_filesz = notes.p_memsz = sizeof note + metadata.size();
  segment.p_type = PT_LOAD;
  segment.p_flags = PF_R | PF_W;
  segment.p_align = 4096;
  segment.p_filesz = notes.p_offset + notes.p_filesz;
  segment.p_memsz = bytes;

  Elf64_Shdr sections[5] = {};
  const auto section = [&](int number, const char* name, uint32_t type, uint64_t offset,
                           uint64_t size) {
    Elf64_Shdr& made = sections[number];
    made.sh_name = static_cast<uint32_t>(names.find(std::string(name) + '\0'));
    made.sh_type = type;
    made.sh_offset = offset;
    made.sh_size = size;
    made.sh_addralign = 8;
  };
  const uint64_t after_segment = segment.p_filesz, end = (after_segment + names.size() + 7) / 8 * 8;
  section(1, ".shstrtab", SHT_STRTAB, after_segment, names.size());
  section(2, ".strtab", SHT_STRTAB, after_segment, 1);  // the empty name
  section(3, ".symtab", SHT_SYMTAB, end, sizeof(Elf64_Sym));
  sections[3].sh_link = 2;
  sections[3].sh_info = 1;
  sections[3].sh_entsize = sizeof(Elf64_Sym);
  section(4, ".note", SHT_NOTE, notes.p_offset, notes.p_filesz);
  sections[4].sh_flags = SHF_ALLOC;
  sections[4].sh_addr = notes.p_offset;
  header.e_shoff = end + sizeof(Elf64_Sym);
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 5;
  header.e_shstrndx = 1;

  std::string image;
  append(image, header);
  append(image, segment);
  append(image, notes);
  append(image, note);
  image += metadata + names;
  image.resize(end);
  append(image, Elf64_Sym{});
  append(image, sections);
  return image;
}

}  // namespace client
