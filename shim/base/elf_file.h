// A shared object's file on the disk, before it is loaded: what it imports, which libraries it
// needs, and where the loader searches for those.
//
// The file may contain anything: a file that is not well-formed is treated like no file.
#pragma once

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <string_view>

namespace fracgpu::elf {

// Maps a regular file for reading; no bytes if it cannot. Takes no lock and no heap.
class MappedFile {
 public:
  explicit MappedFile(const char* path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view bytes() const { return bytes_; }

  // `count` items at an offset; null if the file has fewer.
  template <typename Item>
  const Item* at(size_t offset, size_t count = 1) const {
    if (offset > bytes_.size() || count > (bytes_.size() - offset) / sizeof(Item)) return nullptr;
    return reinterpret_cast<const Item*>(bytes_.data() + offset);
  }
  // The text there, which ends within the file; null if no text does.
  const char* text_at(size_t offset) const;

 private:
  std::string_view bytes_;
};

class File {
 public:
  explicit File(const char* path);

  // Whether it is an object for the loader, with all that the functions below need.
  explicit operator bool() const { return sound_; }

  // Calls visit(name) for each import, or for each library that the object needs, until visit
  // returns true. Returns whether it did.
  template <typename Visit>
  bool any_import(Visit visit) const {
    for (size_t i = 0; i < symbol_count_; ++i) {
      if (symbols_[i].st_shndx != SHN_UNDEF || symbols_[i].st_name == 0) continue;
      const char* const name = file_.text_at(strings_ + symbols_[i].st_name);
      if (name != nullptr && visit(name)) return true;
    }
    return false;
  }
  template <typename Visit>
  bool any_needed(Visit visit) const {
    return any_text(DT_NEEDED, visit);
  }
  // The same for its lists of folders, separated by colons.
  template <typename Visit>
  bool any_search_path(Visit visit) const {
    return any_text(DT_RPATH, visit) || any_text(DT_RUNPATH, visit);
  }

 private:
  size_t offset_of(ElfW(Addr) address) const;
  bool count_symbols(size_t symbols, size_t hash, size_t gnu_hash);
  template <typename Visit>
  bool any_text(ElfW(Sxword) tag, Visit visit) const {
    for (size_t i = 0; i < dynamic_count_ && dynamic_[i].d_tag != DT_NULL; ++i) {
      if (dynamic_[i].d_tag != tag) continue;
      const char* const text = file_.text_at(strings_ + dynamic_[i].d_un.d_val);
      if (text != nullptr && visit(text)) return true;
    }
    return false;
  }

  MappedFile file_;
  const ElfW(Phdr) * segments_ = nullptr;
  size_t segment_count_ = 0;
  const ElfW(Dyn) * dynamic_ = nullptr;
  size_t dynamic_count_ = 0;
  const ElfW(Sym) * symbols_ = nullptr;
  size_t symbol_count_ = 0;
  size_t strings_ = 0;  // offset
  bool sound_ = false;
};

}  // namespace fracgpu::elf
