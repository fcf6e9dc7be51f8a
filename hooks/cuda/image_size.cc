// Cubins and fatbins; see image_size.h.
//
// Several public readers of the format describe a fatbin's entries. ELF itself shows which parts of
// a cubin are in device memory: the allocated sections. Of the sections without bytes in the file,
// only .nv.global is device memory: .nv.shared belongs to a thread block and .nv.local to a thread.
#include "hooks/cuda/image_size.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "shim/base/descriptor.h"
#include "shim/base/elf_image.h"

namespace fracgpu::cuda {
namespace {

constexpr uint32_t kWrapperMagic = 0x466243b1, kFatbinMagic = 0xba55ed50;

class OpenFile {
 public:
  explicit OpenFile(const char* path) : descriptor_(open_own(path, O_RDONLY | O_NONBLOCK)) {}
  ~OpenFile() {
    if (descriptor_ >= 0) close_own(descriptor_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  explicit operator bool() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

bool is_global(const ByteSource& names, const Elf64_Shdr& section) {
  constexpr char kGlobal[] = {'.', 'n', 'v', '.', 'g', 'l', 'o', 'b', 'a', 'l'};
  char name[sizeof kGlobal];
  return names.read_some(section.sh_name, name, sizeof name) == sizeof name &&
         memcmp(name, kGlobal, sizeof name) == 0;
}

uint64_t bytes_of_cubin(const ByteSource& image, Loading loading) {
  constexpr uint16_t kCuda = 190;
  constexpr uint64_t kMostSections = 1u << 20;  // a module of cuBLAS has some ten thousand
  const auto header = read_elf_header(image, kCuda);
  if (!header || header->e_shentsize != sizeof(Elf64_Shdr)) return 0;
  // The first section has the numbers that do not fit into 16 bits.
  const auto first = image.read<Elf64_Shdr>(header->e_shoff);
  if (!first) return 0;
  const uint64_t count = header->e_shnum != 0 ? header->e_shnum : first->sh_size;
  const uint64_t named = header->e_shstrndx != SHN_XINDEX ? header->e_shstrndx : first->sh_link;
  if (count > kMostSections || named >= count) return 0;
  const auto names = image.read<Elf64_Shdr>(header->e_shoff + named * sizeof(Elf64_Shdr));
  if (!names) return 0;
  const ByteSource text = image.part(names->sh_offset, names->sh_size);
  uint64_t sum = 0;
  bool sound = true;
  const auto add = [&](const Elf64_Shdr& section) {
    if ((section.sh_flags & SHF_ALLOC) == 0) return;
    if (loading == Loading::lazy && (section.sh_flags & SHF_EXECINSTR) != 0) return;
    if (section.sh_type == SHT_NOBITS && !is_global(text, section)) return;
    sound = !__builtin_add_overflow(sum, section.sh_size, &sum) && sound;
  };
  return image.for_each<Elf64_Shdr>(header->e_shoff, count, add) && sound ? sum : 0;
}

struct FatbinHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;
  uint64_t bytes;  // after the header
};

struct FatbinEntry {
  enum : uint16_t { kPtx = 1, kCubin = 2 };

  uint16_t kind;
  uint16_t unknown;
  uint32_t header_bytes;
  uint64_t bytes;  // behind the header
  uint64_t not_needed[5];
  uint64_t inflated_bytes;  // 0: it is not compressed

  // Compressed code reveals only its inflated size.
  uint64_t need(const ByteSource& content, Loading loading) const {
    if (inflated_bytes != 0) return loading == Loading::eager ? inflated_bytes : 0;
    return kind == kPtx ? bytes_of_ptx(content, loading) : bytes_of_cubin(content, loading);
  }
};
static_assert(sizeof(FatbinEntry) == 64);

// The driver loads one entry that was compiled for the device, or else compiles the PTX. The choice
// makes little difference to the size.
uint64_t bytes_of_fatbin(const ByteSource& image, Loading loading) {
  // Limits a damaged image with endless entries. Libraries have one entry for each architecture and
  // file.
  constexpr int kMostEntries = 4096;
  const auto header = image.read<FatbinHeader>(0);
  if (!header) return 0;
  const ByteSource entries = image.part(header->header_bytes, header->bytes);
  uint64_t most_of_cubin = 0, most_of_ptx = 0, at = 0;
  for (int i = 0; i < kMostEntries && at < header->bytes; ++i) {
    const auto entry = entries.read<FatbinEntry>(at);
    if (!entry || entry->header_bytes < sizeof *entry || entry->bytes > header->bytes) break;
    const ByteSource content = entries.part(at + entry->header_bytes, entry->bytes);
    uint64_t& most = entry->kind == FatbinEntry::kPtx ? most_of_ptx : most_of_cubin;
    most = std::max(most, entry->need(content, loading));
    at += entry->header_bytes + entry->bytes;
  }
  return most_of_cubin != 0 ? most_of_cubin : most_of_ptx;
}

}  // namespace

uint64_t bytes_of_image(const ByteSource& image, Loading loading) {
  const auto magic = image.read<uint32_t>(0);
  if (magic == kFatbinMagic) return bytes_of_fatbin(image, loading);
  const uint64_t of_cubin = bytes_of_cubin(image, loading);
  return of_cubin != 0 ? of_cubin : bytes_of_ptx(image, loading);
}

uint64_t image_bytes(const void* image, Loading loading) {
  const OpenFile memory("/proc/self/mem");
  if (!memory || image == nullptr) return 0;
  const ByteSource given = ByteSource::in_process(memory.descriptor(), image);
  if (given.read<uint32_t>(0) != kWrapperMagic) return bytes_of_image(given, loading);
  constexpr uint64_t kContent = 8;
  const auto content = given.read<const void*>(kContent);
  if (!content) return 0;
  return bytes_of_image(ByteSource::in_process(memory.descriptor(), *content), loading);
}

uint64_t file_bytes(const char* path, Loading loading) {
  if (path == nullptr) return 0;
  const OpenFile file(path);
  return file ? bytes_of_image(ByteSource::in_file(file.descriptor()), loading) : 0;
}

}  // namespace fracgpu::cuda
