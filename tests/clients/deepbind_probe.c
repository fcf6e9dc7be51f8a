/* deepbind_probe LIBRARY: opens it with RTLD_DEEPBIND and prints what its functions answer. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

/* The libraries have one, too. */
const char* who(void) {
  return "program";
}

int main(int count, char** arguments) {
  if (count != 2) return 2;
  void* const library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
  const char* (*const plugin_who)(void) = (const char* (*)(void))dlsym(library, "plugin_who");
  if (plugin_who != NULL) printf("who is=%s\n", plugin_who());
  int (*const plugin_alloc)(unsigned long) = (int (*)(unsigned long))dlsym(library, "plugin_alloc");
  if (plugin_alloc != NULL) printf("alloc rc=%d\n", plugin_alloc(2ul << 30));
  return 0;
}
