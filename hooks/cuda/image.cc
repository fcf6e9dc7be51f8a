// Determines the length of an image as the driver does, and hashes it; see image.h.
//
// The driver does not get a size either: it reads a cubin's section headers, a fatbin's header, or
// a text up to its end. So this code reads no byte that the driver would not read.
#include "hooks/cuda/image.h"

#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include <algorithm>

#include "shim/base/hash_table.h"

namespace fracgpu::cuda {
namespace {

// Hashing takes 0.25 to 0.45 ms for each MiB and may save a list of 4.49 ms. Hashing an image of
// ten times this size would take as long as the list.
constexpr size_t kMost = 1u << 20;

// From fatbinary_section.h and fatbinary.h of the CUDA toolkit.
struct FatbinWrapper {
  uint32_t magic;
  uint32_t version;
  const void* data;
};
struct FatbinHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;
  uint64_t bytes;  // after the header
};
constexpr uint32_t kWrapperMagic = 0x466243b1, kFatbinMagic = 0xba55ed50;

uint64_t mix(uint64_t hash, uint64_t word) {
  return hash_of(hash * 31 + word);
}

uint64_t hash_bytes(const void* bytes, size_t size) {
  const auto* const at = static_cast<const unsigned char*>(bytes);
  uint64_t hash = size;
  size_t i = 0;
  for (; i + 8 <= size; i += 8) {
    uint64_t word = 0;
    memcpy(&word, at + i, sizeof word);
    hash = mix(hash, word);
  }
  uint64_t rest = 0;
  memcpy(&rest, at + i, size - i);
  hash = mix(hash, rest);
  return hash != 0 ? hash : 1;
}

// 0 if the size cannot be determined.
size_t size_of_elf(const void* image) {
  Elf64_Ehdr header;
  memcpy(&header, image, sizeof header);
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return 0;
  const uint64_t sections = header.e_shoff + uint64_t{header.e_shnum} * header.e_shentsize;
  const uint64_t segments = header.e_phoff + uint64_t{header.e_phnum} * header.e_phentsize;
  return std::max({sections, segments, uint64_t{sizeof header}});
}

// The size of an image that begins with `magic`.
size_t size_of(const void* image, uint32_t magic) {
  if (memcmp(&magic, ELFMAG, SELFMAG) == 0) return size_of_elf(image);
  if (magic == kFatbinMagic) {
    FatbinHeader header;
    memcpy(&header, image, sizeof header);
    return header.bytes <= kMost ? header.header_bytes + header.bytes : 0;
  }
  return strnlen(static_cast<const char*>(image), kMost + 1);
}

}  // namespace

uint64_t image_key(const void* image) {
  if (image == nullptr) return 0;
  // A text may be shorter than a magic number.
  const size_t readable = strnlen(static_cast<const char*>(image), sizeof(uint32_t));
  uint32_t magic = 0;
  const auto* const first = static_cast<const unsigned char*>(image);
  const bool binary =
      *first == 0x7f || *first == (kWrapperMagic & 0xff) || *first == (kFatbinMagic & 0xff);
  memcpy(&magic, image, binary ? sizeof magic : readable);
  if (magic == kWrapperMagic) {
    FatbinWrapper wrapper;
    memcpy(&wrapper, image, sizeof wrapper);
    if (wrapper.data == nullptr) return 0;
    image = wrapper.data;
    memcpy(&magic, image, sizeof magic);
    if (magic != kFatbinMagic) return 0;
  }
  const size_t size = size_of(image, magic);
  return size != 0 && size <= kMost ? hash_bytes(image, size) : 0;
}

uint64_t file_key(const char* path) {
  struct statx file;
  if (path == nullptr || statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, &file) != 0) return 0;
  const uint64_t words[] = {uint64_t{file.stx_dev_major} << 32 | file.stx_dev_minor, file.stx_ino,
                            file.stx_size, static_cast<uint64_t>(file.stx_mtime.tv_sec),
                            file.stx_mtime.tv_nsec};
  return hash_bytes(words, sizeof words);
}

uint64_t key_with_options(uint64_t image, unsigned int count, const int* options, void** values) {
  if (image == 0 || count == 0) return image;
  if (options == nullptr || values == nullptr) return 0;
  return mix(mix(image, hash_bytes(options, count * sizeof *options)),
             hash_bytes(values, count * sizeof *values));
}

}  // namespace fracgpu::cuda
