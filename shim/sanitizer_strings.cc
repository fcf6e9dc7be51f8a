// For sanitizer builds only: the string functions that the doors use.
//
// A sanitizer's runtime intercepts them, and at its own start looks their real addresses up by
// dlsym, which is our door. Calling them there would jump to an address not yet known.
#include <stddef.h>

extern "C" {

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
