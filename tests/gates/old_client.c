// Finds the driver while it runs, as libcudart does, and asks for 768 and 512 MiB; see
// oldest_glibc.sh and musl.sh.
#include <dlfcn.h>
#include <stdio.h>

#pragma weak gnu_get_libc_version
const char* gnu_get_libc_version(void);

int main(void) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == NULL) return puts(dlerror()), 1;
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  int (*info)(size_t*, size_t*) = (int (*)(size_t*, size_t*))dlsym(driver, "cuMemGetInfo_v2");
  int (*allocate)(unsigned long long*, size_t) =
      (int (*)(unsigned long long*, size_t))dlsym(driver, "cuMemAlloc_v2");
  if (init == NULL || info == NULL || allocate == NULL) return 2;

  size_t free = 0, total = 0;
  unsigned long long pointer = 0;
  if (init(0) != 0 || info(&free, &total) != 0) return 3;
  if (gnu_get_libc_version != NULL) {
    printf("glibc %s\n", gnu_get_libc_version());
  } else {
    puts("no glibc");
  }
  printf("total %zu MiB\n", total >> 20);
  printf("768 MiB: %d\n", allocate(&pointer, (size_t)768 << 20));
  printf("512 MiB: %d\n", allocate(&pointer, (size_t)512 << 20));
  return 0;
}
