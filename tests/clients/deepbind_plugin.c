/* What deepbind_probe opens. PLAIN: knows nothing of GPUs. LOOKS_UP: opens the driver and looks its
 * functions up. Else it leaves that to the library that it needs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

#ifndef HELPER
const char* who(void) {
  return "plugin";
}
const char* plugin_who(void) {
  return who();
}
#endif

#ifdef LOOKS_UP
int PLUGIN_ALLOC(unsigned long bytes) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == NULL) return -1;
  int (*const init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  int (*const retain)(void**, int) =
      (int (*)(void**, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
  int (*const set)(void*) = (int (*)(void*))dlsym(driver, "cuCtxSetCurrent");
  int (*const alloc)(void**, size_t) = (int (*)(void**, size_t))dlsym(driver, "cuMemAlloc_v2");
  void* context = NULL;
  void* memory = NULL;
  if (init(0) != 0 || retain(&context, 0) != 0 || set(context) != 0) return -2;
  return alloc(&memory, bytes);
}
#elif !defined(PLAIN)
int helper_alloc(unsigned long bytes);
int plugin_alloc(unsigned long bytes) {
  return helper_alloc(bytes);
}
#endif
