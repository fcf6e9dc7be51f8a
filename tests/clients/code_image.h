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

// AMD's, with one loadable segment of so many bytes.
inline std::string amd_code_object(uint64_t bytes) {
  constexpr uint16_t kAmdGpu = 224;
  Elf64_Ehdr header = elf_header(kAmdGpu);
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 1;
  Elf64_Phdr segment = {};
  segment.p_type = PT_LOAD;
  segment.p_filesz = sizeof header + sizeof segment;
  segment.p_memsz = bytes;
  std::string image;
  append(image, header);
  append(image, segment);
  return image;
}

}  // namespace client
