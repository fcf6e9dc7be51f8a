/* Another preloaded library that wraps cuMemAlloc_v2, as profilers do: it finds the next one with
 * RTLD_NEXT, passes the call on, and says on stderr that it was called. It can also wrap dlsym for
 * its own purposes, which is how overlays do it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

typedef int (*allocate_function)(unsigned long long*, size_t);

static __thread int depth;

int cuMemAlloc_v2(unsigned long long* pointer, size_t bytes) {
  allocate_function next = (allocate_function)dlsym(RTLD_NEXT, "cuMemAlloc_v2");
  if (next == NULL) return 999;
  if (++depth > 8) {
    fprintf(stderr, "interposer: recursion\n");
    depth = 0;
    return 998;
  }
  fprintf(stderr, "interposer: cuMemAlloc_v2\n");
  int result = next(pointer, bytes);
  depth--;
  return result;
}
