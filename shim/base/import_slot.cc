// Finds an import's relocation in the object's dynamic section; see import_slot.h.
#include "shim/base/import_slot.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <span>

#include "shim/base/real_dlfcn.h"
#include "shim/base/report.h"
#include "shim/base/sleep_lock.h"
#include "shim/base/spin_lock.h"

namespace fracgpu::elf {
namespace {

#ifdef __aarch64__
constexpr uint32_t kJumpSlot = R_AARCH64_JUMP_SLOT, kGlobalData = R_AARCH64_GLOB_DAT;
#else
constexpr uint32_t kJumpSlot = R_X86_64_JUMP_SLOT, kGlobalData = R_X86_64_GLOB_DAT;
#endif

using Slot = std::atomic<void*>;

class Relocations {
 public:
  explicit Relocations(const Loaded& object) : base_(object.base) {
    const auto* entry = static_cast<const ElfW(Dyn)*>(object.dynamic);
    for (; entry->d_tag != DT_NULL; ++entry) {
      const ElfW(Addr) value = entry->d_un.d_ptr;
      // The C library may have relocated the addresses in place, or not (musl).
      const ElfW(Addr) address = value < base_ ? value + base_ : value;
      if (entry->d_tag == DT_STRTAB) strings_ = reinterpret_cast<const char*>(address);
      if (entry->d_tag == DT_SYMTAB) symbols_ = reinterpret_cast<const ElfW(Sym)*>(address);
      if (entry->d_tag == DT_JMPREL) calls_ = reinterpret_cast<const ElfW(Rela)*>(address);
      if (entry->d_tag == DT_PLTRELSZ) call_bytes_ = value;
      if (entry->d_tag == DT_RELA) others_ = reinterpret_cast<const ElfW(Rela)*>(address);
      if (entry->d_tag == DT_RELASZ) other_bytes_ = value;
    }
  }

  // Objects built with -fno-plt have no table of calls: the address is among their other data.
  Slot* find(const char* name) const {
    if (strings_ == nullptr || symbols_ == nullptr) return nullptr;
    Slot* const called = find({calls_, calls_ != nullptr ? call_bytes_ / sizeof *calls_ : 0}, name);
    if (called != nullptr) return called;
    return find({others_, others_ != nullptr ? other_bytes_ / sizeof *others_ : 0}, name);
  }

 private:
  Slot* find(std::span<const ElfW(Rela)> list, const char* name) const {
    for (const ElfW(Rela) & each : list) {
      const uint64_t type = ELF64_R_TYPE(each.r_info);
      if (type != kJumpSlot && type != kGlobalData) continue;
      if (strcmp(strings_ + symbols_[ELF64_R_SYM(each.r_info)].st_name, name) == 0)
        return reinterpret_cast<Slot*>(base_ + each.r_offset);
    }
    return nullptr;
  }

  ElfW(Addr) base_;
  const char* strings_ = nullptr;
  const ElfW(Sym) * symbols_ = nullptr;
  const ElfW(Rela) * calls_ = nullptr;
  const ElfW(Rela) * others_ = nullptr;
  size_t call_bytes_ = 0, other_bytes_ = 0;
};

// Whether the dynamic linker made this page read-only after it had written it (RELRO). It rounds
// both ends down to pages, so a last page of which the segment has only the beginning stays
// writable.
bool is_read_only(const Loaded& object, uintptr_t page, uintptr_t page_bytes) {
  const auto* const header = reinterpret_cast<const ElfW(Ehdr)*>(object.begin);
  if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return false;
  const std::span segments(reinterpret_cast<const ElfW(Phdr)*>(object.begin + header->e_phoff),
                           header->e_phnum);
  for (const ElfW(Phdr) & segment : segments) {
    if (segment.p_type != PT_GNU_RELRO) continue;
    const uintptr_t start = object.base + segment.p_vaddr, end = start + segment.p_memsz;
    if (page >= (start & ~(page_bytes - 1)) && page < (end & ~(page_bytes - 1))) return true;
  }
  return false;
}

}  // namespace

bool replace_import(const Loaded& object, const char* name, void* with,
                    std::atomic<void*>& before) {
  Slot* const slot = Relocations(object).find(name);
  void* found = slot != nullptr ? slot->load(std::memory_order_relaxed) : nullptr;
  if (slot == nullptr || found == with) return false;
  // Not bound yet: the object's own stub would bind it, and overwrite the slot.
  if (object.contains(found)) {
    const auto look_up = real_dl_function<decltype(&::dlsym)>("dlsym");
    found = look_up != nullptr ? look_up(RTLD_DEFAULT, name) : nullptr;
  }
  if (found == nullptr) return false;
  const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t page = reinterpret_cast<uintptr_t>(slot) & ~(page_bytes - 1);
  void* const start = reinterpret_cast<void*>(page);
  static constinit SleepLock replacing;  // two threads would change a page's protection in turn
  const Locked<SleepLock> lock(replacing);
  const bool read_only = is_read_only(object, page, page_bytes);
  if (read_only && mprotect(start, page_bytes, PROT_READ | PROT_WRITE) != 0) return false;
  before.store(found, std::memory_order_release);
  slot->store(with, std::memory_order_release);
  if (read_only) mprotect(start, page_bytes, PROT_READ);
  return true;
}

bool calls_another(const Loaded& object, const char* name, const void* with) {
  const Slot* const slot = Relocations(object).find(name);
  return slot != nullptr && slot->load(std::memory_order_relaxed) != with;
}

bool watch_requests(const Loaded& library, void* ioctl, std::atomic<void*>& before,
                    std::atomic<bool>& has_warned) {
  if (replace_import(library, "ioctl", ioctl, before)) return true;
  if (calls_another(library, "ioctl", ioctl) && !has_warned.exchange(true)) {
    report(Level::warn, "{}: its requests to the kernel driver cannot be watched; they have no cap",
           file_name(library.path));
  }
  return false;
}

}  // namespace fracgpu::elf
