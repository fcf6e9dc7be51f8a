// C's functions for numbers, by the names that every glibc has.
//
// Since glibc 2.38 its headers turn strtol and the like into other functions, which read "0b" too
// and which no older glibc has. A library that is built there must load on older ones.
#include <stdlib.h>

extern "C" {

#define OLDEST(type, name)                                                   \
  type oldest_##name(const char* text, char** end, int base) __asm__(#name); \
  __attribute__((visibility("hidden")))                                      \
  type __isoc23_##name(const char* text, char** end, int base) noexcept {    \
    return oldest_##name(text, end, base);                                   \
  }

OLDEST(long, strtol)
OLDEST(long long, strtoll)
OLDEST(unsigned long, strtoul)
OLDEST(unsigned long long, strtoull)

}  // extern "C"
