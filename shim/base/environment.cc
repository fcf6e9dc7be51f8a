// Reads the environment; see environment.h.
#include "shim/base/environment.h"

#include <stdlib.h>

namespace fracgpu {

const char* trusted_environment(const char* name) {
  return secure_getenv(name);
}

}  // namespace fracgpu
