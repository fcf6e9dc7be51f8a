// The C library's functions that the dlsym interposer uses, defined here and hidden.
//
// A sanitizer's runtime, fakechroot and similar libraries interpose these functions too. They look
// up the real ones by dlsym when they are first called or at their own start. Our interposer
// answers that look-up. If it called their functions meanwhile, it would jump to an address that
// they do not know yet, or call itself for ever. So it calls no other library's functions, in any
// build.
//
// The compiler must not turn a loop into a call of the very function that it defines; see the
// options in CMakeLists.txt.
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
