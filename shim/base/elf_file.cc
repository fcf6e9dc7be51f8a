// Reads the parts of an object's file that the loader would; see elf_file.h.
#include "shim/base/elf_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "shim/base/descriptor.h"

namespace fracgpu::elf {

MappedFile::MappedFile(const char* path) {
  const int code = errno;
  const int fd = open_own(path, O_RDONLY | O_NONBLOCK);
  struct statx status;
  if (fd >= 0 && statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_SIZE, &status) == 0 &&
      S_ISREG(status.stx_mode) && status.stx_size > 0) {
    void* const bytes = mmap(nullptr, status.stx_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes != MAP_FAILED) bytes_ = {static_cast<const char*>(bytes), status.stx_size};
  }
  if (fd >= 0) close_own(fd);
  errno = code;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<char*>(bytes_.data()), bytes_.size());
}

const char* MappedFile::text_at(size_t offset) const {
  if (offset >= bytes_.size() ||
      memchr(bytes_.data() + offset, '\0', bytes_.size() - offset) == nullptr) {
    return nullptr;
  }
  return bytes_.data() + offset;
}

File::File(const char* path) : file_(path) {
  const auto* const header = file_.at<ElfW(Ehdr)>(0);
  if (header == nullptr || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_phentsize != sizeof(ElfW(Phdr))) {
    return;
  }
  segments_ = file_.at<ElfW(Phdr)>(header->e_phoff, header->e_phnum);
  segment_count_ = segments_ == nullptr ? 0 : header->e_phnum;
  for (size_t i = 0; i < segment_count_; ++i) {
    if (segments_[i].p_type != PT_DYNAMIC) continue;
    dynamic_count_ = segments_[i].p_filesz / sizeof(ElfW(Dyn));
    dynamic_ = file_.at<ElfW(Dyn)>(segments_[i].p_offset, dynamic_count_);
  }
  if (dynamic_ == nullptr) return;
  size_t symbols = 0, hash = 0, gnu_hash = 0;
  bool filters = false;
  for (size_t i = 0; i < dynamic_count_ && dynamic_[i].d_tag != DT_NULL; ++i) {
    switch (dynamic_[i].d_tag) {
      case DT_STRTAB:
        strings_ = offset_of(dynamic_[i].d_un.d_ptr);
        break;
      case DT_SYMTAB:
        symbols = offset_of(dynamic_[i].d_un.d_ptr);
        break;
      case DT_HASH:
        hash = offset_of(dynamic_[i].d_un.d_ptr);
        break;
      case DT_GNU_HASH:
        gnu_hash = offset_of(dynamic_[i].d_un.d_ptr);
        break;
      case DT_AUXILIARY:
      case DT_FILTER:
        filters = true;  // the objects that these lead to are not searched
        break;
      default:
        break;
    }
  }
  sound_ = strings_ != 0 && symbols != 0 && !filters && count_symbols(symbols, hash, gnu_hash);
}

// The file's offset of what will be at the address; 0 if the file has nothing for it.
size_t File::offset_of(ElfW(Addr) address) const {
  for (size_t i = 0; i < segment_count_; ++i) {
    const ElfW(Phdr)& segment = segments_[i];
    if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
        address - segment.p_vaddr < segment.p_filesz) {
      return segment.p_offset + (address - segment.p_vaddr);
    }
  }
  return 0;
}

// The number of symbols is not recorded. An old hash table has all of them. A GNU hash table begins
// behind the imports, unless it is empty: then it shows nothing. Linkers put the names behind the
// symbols, so in that case everything up to the names counts, which may be too much.
bool File::count_symbols(size_t symbols, size_t hash, size_t gnu_hash) {
  const auto* const old = hash == 0 ? nullptr : file_.at<uint32_t>(hash, 2);
  const auto* const gnu = gnu_hash == 0 ? nullptr : file_.at<uint32_t>(gnu_hash, 4);
  size_t count = strings_ > symbols ? (strings_ - symbols) / sizeof(ElfW(Sym)) : 0;
  if (old != nullptr) {
    count = old[1];
  } else if (gnu != nullptr) {
    const size_t buckets_at = gnu_hash + 4 * sizeof(uint32_t) + gnu[2] * sizeof(ElfW(Addr));
    const auto* const buckets = file_.at<uint32_t>(buckets_at, gnu[0]);
    if (buckets == nullptr) return false;
    if (std::any_of(buckets, buckets + gnu[0], [](uint32_t first) { return first != 0; })) {
      count = gnu[1];
    }
  }
  symbols_ = file_.at<ElfW(Sym)>(symbols, count);
  symbol_count_ = symbols_ == nullptr ? 0 : count;
  return symbol_count_ != 0;
}

}  // namespace fracgpu::elf
