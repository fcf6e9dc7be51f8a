// Reads images as the driver does, which is given no size either: it trusts their headers.
// The form of fatbins is from public readers of it (n-eiling/cuda-fatbin-decompression, ZLUDA).
#include "sim/cuda/image.h"

#include <elf.h>

#include <cstdlib>
#include <cstring>
#include <string>

namespace sim {
namespace {

template <typename Item>
Item at(const char* image, uint64_t offset) {
  Item item;
  std::memcpy(&item, image + offset, sizeof item);
  return item;
}

uint64_t of_cubin(const char* image, bool lazy) {
  const auto header = at<Elf64_Ehdr>(image, 0);
  const auto section = [&](unsigned index) {
    return at<Elf64_Shdr>(image, header.e_shoff + index * uint64_t{header.e_shentsize});
  };
  uint64_t sum = 0;
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr here = section(i);
    const std::string name = image + section(header.e_shstrndx).sh_offset + here.sh_name;
    const bool own = name.rfind(".nv.shared", 0) == 0 || name.rfind(".nv.local", 0) == 0;
    const bool later = lazy && (here.sh_flags & SHF_EXECINSTR) != 0;
    if ((here.sh_flags & SHF_ALLOC) != 0 && !own && !later) sum += here.sh_size;
  }
  return sum;
}

uint64_t of_ptx(const char* text) {
  if (std::strncmp(text, ".version", 8) != 0) return 0;
  uint64_t bytes = 0;
  while ((text = std::strstr(text, ".global .align")) != nullptr) {
    text += std::strcspn(text, "[;");
    if (*text == '[') bytes += std::strtoull(text + 1, nullptr, 10);
  }
  return bytes;
}

uint64_t of_fatbin(const char* image, bool lazy) {
  const uint64_t end = at<uint16_t>(image, 6) + at<uint64_t>(image, 8);
  uint64_t ptx = 0;
  for (uint64_t entry = at<uint16_t>(image, 6); entry < end;) {
    const auto content = entry + at<uint32_t>(image, entry + 4);
    const auto inflated = at<uint64_t>(image, entry + 56);
    const bool cubin = at<uint16_t>(image, entry) == 2;
    const uint64_t compressed = lazy ? 0 : inflated;
    if (cubin) return inflated != 0 ? compressed : of_cubin(image + content, lazy);
    if (ptx == 0) ptx = inflated != 0 ? compressed : of_ptx(image + content);
    entry = content + at<uint64_t>(image, entry + 8);
  }
  return ptx;
}

constexpr char kWrapper[] = "\xb1\x43\x62\x46", kFatbin[] = "\x50\xed\x55\xba";

}  // namespace

bool is_image(const char* bytes, size_t size) {
  constexpr uint16_t kCuda = 190;
  if (size >= 16 && std::memcmp(bytes, kFatbin, 4) == 0) return true;
  return size >= sizeof(Elf64_Ehdr) && std::memcmp(bytes, ELFMAG, SELFMAG) == 0 &&
         at<Elf64_Ehdr>(bytes, 0).e_machine == kCuda;
}

uint64_t bytes_on_device(const void* given, bool lazy) {
  const char* image = static_cast<const char*>(given);
  if (std::strncmp(image, kWrapper, 4) == 0) image = at<const char*>(image, 8);
  if (std::strncmp(image, ELFMAG, SELFMAG) == 0) return of_cubin(image, lazy);
  if (std::strncmp(image, kFatbin, 4) == 0) return of_fatbin(image, lazy);
  return of_ptx(image);
}

}  // namespace sim
