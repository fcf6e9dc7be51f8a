/* Allocates twice 600 MiB and prints the driver's answers: a program that is small enough for every
 * sanitizer to compile and to run. */
#include <dlfcn.h>
#include <stdio.h>

typedef int (*init_function)(unsigned);
typedef int (*retain_function)(void**, int);
typedef int (*set_function)(void*);
typedef int (*allocate_function)(unsigned long long*, size_t);

int main(void) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == NULL) return 10;
  init_function init = (init_function)dlsym(driver, "cuInit");
  retain_function retain = (retain_function)dlsym(driver, "cuDevicePrimaryCtxRetain");
  set_function set_current = (set_function)dlsym(driver, "cuCtxSetCurrent");
  allocate_function allocate = (allocate_function)dlsym(driver, "cuMemAlloc_v2");
  if (init == NULL || retain == NULL || set_current == NULL || allocate == NULL) return 11;
  void* context = NULL;
  if (init(0) != 0 || retain(&context, 0) != 0 || set_current(context) != 0) return 12;
  for (int i = 0; i < 2; ++i) {
    unsigned long long pointer = 0;
    printf("alloc rc=%d\n", allocate(&pointer, (size_t)600 << 20));
  }
  return 0;
}
