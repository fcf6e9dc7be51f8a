// The constructor of the library. It is linked last, so that it runs after the constructors of the
// library's own objects, and before those of all other libraries (-z initfirst), which may open
// files. The C library has no environment yet.
#include "kernel.h"

__attribute__((constructor)) static void attach_at_start(int, char**, char** environment) {
  rmsim::attach(environment);
}
