// Reads ELF headers; see elf_file.h.
#include "tools/doctor/elf_file.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "tools/cli/descriptor.h"

namespace fracgpu::tools {
namespace {

constexpr size_t kMostEntries = 4096;  // of any table; no valid file has more

class Reader {
 public:
  explicit Reader(const std::string& path)
      : file_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}

  template <typename Value>
  bool read(uint64_t offset, Value& value) const {
    return pread(file_.get(), &value, sizeof value, static_cast<off_t>(offset)) == sizeof value;
  }

  std::string text(uint64_t offset) const {
    char bytes[4096];
    const ssize_t size = pread(file_.get(), bytes, sizeof bytes, static_cast<off_t>(offset));
    return size <= 0 ? "" : std::string(bytes, strnlen(bytes, static_cast<size_t>(size)));
  }

 private:
  Descriptor file_;
};

struct Dynamic {
  std::vector<uint64_t> needed{};  // offsets in the string table
  uint64_t strings = 0, versions = 0, version_count = 0;
};

class Elf64 {
 public:
  Elf64(const Reader& reader, const Elf64_Ehdr& header) : reader_(reader) {
    for (size_t i = 0; i < header.e_phnum && i < kMostEntries; ++i) {
      Elf64_Phdr segment;
      if (!reader.read(header.e_phoff + i * sizeof segment, segment)) break;
      segments_.push_back(segment);
    }
  }

  void fill(ElfFile& file) const {
    Dynamic dynamic;
    for (const Elf64_Phdr& segment : segments_) {
      if (segment.p_type == PT_INTERP) file.interpreter = reader_.text(segment.p_offset);
      if (segment.p_type == PT_DYNAMIC) dynamic = read_dynamic(segment);
    }
    for (const uint64_t name : dynamic.needed) {
      file.needed.push_back(reader_.text(offset_of(dynamic.strings) + name));
    }
    read_versions(dynamic, file);
  }

 private:
  uint64_t offset_of(uint64_t address) const {
    for (const Elf64_Phdr& segment : segments_) {
      if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
          address - segment.p_vaddr < segment.p_filesz) {
        return address - segment.p_vaddr + segment.p_offset;
      }
    }
    return 0;
  }

  Dynamic read_dynamic(const Elf64_Phdr& segment) const {
    Dynamic dynamic;
    for (size_t i = 0; i < std::min(segment.p_filesz / sizeof(Elf64_Dyn), kMostEntries); ++i) {
      Elf64_Dyn entry;
      if (!reader_.read(segment.p_offset + i * sizeof entry, entry)) break;
      if (entry.d_tag == DT_NULL) break;
      if (entry.d_tag == DT_NEEDED) dynamic.needed.push_back(entry.d_un.d_val);
      if (entry.d_tag == DT_STRTAB) dynamic.strings = entry.d_un.d_ptr;
      if (entry.d_tag == DT_VERNEED) dynamic.versions = entry.d_un.d_ptr;
      if (entry.d_tag == DT_VERNEEDNUM) dynamic.version_count = entry.d_un.d_val;
    }
    return dynamic;
  }

  void read_versions(const Dynamic& dynamic, ElfFile& file) const {
    constexpr std::string_view kPrefix = "GLIBC_";
    uint64_t at = offset_of(dynamic.versions);
    for (size_t i = 0; i < std::min<uint64_t>(dynamic.version_count, kMostEntries); ++i) {
      Elf64_Verneed library;
      if (!reader_.read(at, library)) return;
      uint64_t name_at = at + library.vn_aux;
      for (size_t j = 0; j < library.vn_cnt; ++j) {
        Elf64_Vernaux version;
        if (!reader_.read(name_at, version)) return;
        const std::string name = reader_.text(offset_of(dynamic.strings) + version.vna_name);
        if (name.starts_with(kPrefix) && is_newer(name.substr(kPrefix.size()), file.glibc)) {
          file.glibc = name.substr(kPrefix.size());
        }
        if (version.vna_next == 0) break;
        name_at += version.vna_next;
      }
      if (library.vn_next == 0) return;
      at += library.vn_next;
    }
  }

  const Reader& reader_;
  std::vector<Elf64_Phdr> segments_{};
};

}  // namespace

std::string ElfFile::architecture() const {
  switch (machine) {
    case EM_X86_64:
      return is_64_bit ? "x86-64" : "x32";
    case EM_386:
      return "i386";
    case EM_AARCH64:
      return "aarch64";
    case EM_ARM:
      return "arm";
    case EM_PPC64:
      return "ppc64";
    case EM_RISCV:
      return "riscv";
    default:
      return fmt::format("ELF machine {}", machine);
  }
}

ElfFile read_elf(const std::string& path) {
  ElfFile file;
  const Reader reader(path);
  Elf64_Ehdr header;
  // The common start of both classes. It includes the machine.
  struct {
    unsigned char ident[EI_NIDENT];
    uint16_t type, machine;
  } start;
  if (!reader.read(0, start) || memcmp(start.ident, ELFMAG, SELFMAG) != 0) return file;
  file.is_elf = true;
  file.is_64_bit = start.ident[EI_CLASS] == ELFCLASS64;
  file.machine = start.machine;
  if (file.is_64_bit && start.ident[EI_DATA] == ELFDATA2LSB && reader.read(0, header) &&
      header.e_phentsize == sizeof(Elf64_Phdr)) {
    Elf64(reader, header).fill(file);
  }
  return file;
}

bool is_newer(const std::string& a, const std::string& b) {
  const auto numbers = [](const std::string& text) {
    char* end = nullptr;
    const unsigned long major = strtoul(text.c_str(), &end, 10);
    const unsigned long minor = *end == '.' ? strtoul(end + 1, nullptr, 10) : 0;
    return std::pair(major, minor);
  };
  return numbers(a) > numbers(b);
}

}  // namespace fracgpu::tools
