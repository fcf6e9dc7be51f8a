// Imports are replaced in an object that is made here, whose pages are as the dynamic linker leaves
// them: those that RELRO covers as a whole are read-only.
#include "shim/base/import_slot.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace fracgpu {
namespace {

#ifdef __aarch64__
constexpr uint64_t kJumpSlot = R_AARCH64_JUMP_SLOT;
#else
constexpr uint64_t kJumpSlot = R_X86_64_JUMP_SLOT;
#endif

void earlier() {}
void later() {}

// Headers and tables in the first page; data in the second and third, with the slot of the import
// `f` at `slot`. RELRO begins with the second page.
class Object {
 public:
  Object(size_t slot, size_t relro_bytes) : slot_(slot) {
    char* const at = static_cast<char*>(
        mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    image_ = at;
    auto& header = *reinterpret_cast<ElfW(Ehdr)*>(at);
    memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_phoff = sizeof header;
    header.e_phnum = 1;
    auto& relro = *reinterpret_cast<ElfW(Phdr)*>(at + header.e_phoff);
    relro.p_type = PT_GNU_RELRO;
    relro.p_vaddr = kPage;
    relro.p_memsz = relro_bytes;
    auto* const symbols = reinterpret_cast<ElfW(Sym)*>(at + 512);
    symbols[1].st_name = 1;
    strcpy(at + 640 + 1, "f");
    auto& import = *reinterpret_cast<ElfW(Rela)*>(at + 704);
    import = {slot, ELF64_R_INFO(1, kJumpSlot), 0};
    auto* entry = reinterpret_cast<ElfW(Dyn)*>(at + 1024);
    loaded_.dynamic = entry;
    for (const auto& [tag, value] : {std::pair<int64_t, uint64_t>{DT_SYMTAB, 512},
                                     {DT_STRTAB, 640},
                                     {DT_JMPREL, 704},
                                     {DT_PLTRELSZ, sizeof import}})
      *entry++ = {tag, {value}};
    loaded_.base = loaded_.begin = reinterpret_cast<uintptr_t>(at);
    loaded_.end = loaded_.begin + 3 * kPage;
    *reinterpret_cast<void**>(at + slot) = reinterpret_cast<void*>(&earlier);
    // As glibc's _dl_protect_relro and musl do.
    const size_t read_only = relro_bytes / kPage * kPage;
    if (read_only > 0) mprotect(at + kPage, read_only, PROT_READ);
  }
  ~Object() { munmap(image_, 3 * kPage); }

  bool replace(std::atomic<void*>& before) {
    return elf::replace_import(loaded_, "f", reinterpret_cast<void*>(&later), before);
  }
  void* imported() const { return *reinterpret_cast<void**>(image_ + slot_); }
  // Without a fault: by the kernel.
  bool writable(size_t offset) const {
    int ends[2];
    if (pipe(ends) != 0 || write(ends[1], "x", 1) != 1) return false;
    const bool written = read(ends[0], image_ + offset, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return written;
  }

  static inline const size_t kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

 private:
  size_t slot_;
  char* image_;
  elf::Loaded loaded_;
};

void expect_replaced(Object& object) {
  std::atomic<void*> before{nullptr};
  ASSERT_TRUE(object.replace(before));
  EXPECT_EQ(before, reinterpret_cast<void*>(&earlier));
  EXPECT_EQ(object.imported(), reinterpret_cast<void*>(&later));
  EXPECT_FALSE(object.replace(before)) << "a second time";
}

TEST(ImportSlotTest, AReadOnlyPageStaysReadOnly) {
  Object object(Object::kPage + 64, Object::kPage);
  expect_replaced(object);
  EXPECT_FALSE(object.writable(Object::kPage));
  EXPECT_TRUE(object.writable(2 * Object::kPage));
}

// As with pages of 64 KiB and a library that was linked for smaller ones: variables follow on the
// page.
TEST(ImportSlotTest, APageThatRelroOnlyBeginsStaysWritable) {
  Object object(2 * Object::kPage + 64, Object::kPage + 128);
  expect_replaced(object);
  EXPECT_FALSE(object.writable(Object::kPage));
  EXPECT_TRUE(object.writable(2 * Object::kPage + 512));
}

TEST(ImportSlotTest, APageOfAShortRelroStaysWritable) {
  Object object(Object::kPage + 64, 128);
  expect_replaced(object);
  EXPECT_TRUE(object.writable(Object::kPage + 512));
}

}  // namespace
}  // namespace fracgpu
