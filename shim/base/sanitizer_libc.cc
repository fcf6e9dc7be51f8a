// For sanitizer builds only: what the dlsym interposer uses of the C library.
//
// A sanitizer's runtime intercepts these functions, and at its own start looks their real addresses
// up by dlsym, which is our interposer. Calling them there would jump to an address that is not
// known yet.
#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {

// Not under the loader's lock, unlike the real one: good enough for tests, which unload nothing.
int dl_iterate_phdr(int (*visit)(dl_phdr_info*, size_t, void*), void* data) {
  for (const link_map* map = _r_debug.r_map; map != nullptr; map = map->l_next) {
    if (map->l_addr == 0) continue;  // a program at its fixed address
    const auto* header = reinterpret_cast<const ElfW(Ehdr)*>(map->l_addr);
    dl_phdr_info info = {};
    info.dlpi_addr = map->l_addr;
    info.dlpi_name = map->l_name;
    info.dlpi_phdr = reinterpret_cast<const ElfW(Phdr)*>(map->l_addr + header->e_phoff);
    info.dlpi_phnum = header->e_phnum;
    if (const int stop = visit(&info, sizeof info, data); stop != 0) return stop;
  }
  return 0;
}

size_t strlen(const char* text) {
  size_t size = 0;
  while (text[size] != '\0') ++size;
  return size;
}

int strncmp(const char* a, const char* b, size_t size) {
  for (; size > 0; ++a, ++b, --size) {
    if (*a != *b) return static_cast<unsigned char>(*a) - static_cast<unsigned char>(*b);
    if (*a == '\0') break;
  }
  return 0;
}

int strcmp(const char* a, const char* b) {
  return strncmp(a, b, ~size_t{0});
}

int memcmp(const void* a, const void* b, size_t size) {
  auto x = static_cast<const unsigned char*>(a), y = static_cast<const unsigned char*>(b);
  for (; size > 0; ++x, ++y, --size) {
    if (*x != *y) return *x - *y;
  }
  return 0;
}

const void* memchr(const void* bytes, int wanted, size_t size) {
  auto at = static_cast<const unsigned char*>(bytes);
  for (; size > 0; ++at, --size) {
    if (*at == static_cast<unsigned char>(wanted)) return at;
  }
  return nullptr;
}

}  // extern "C"
