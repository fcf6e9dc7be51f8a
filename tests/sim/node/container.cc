// Reads FRACGPU_SIM_HIDDEN; see container.h. Nothing is allocated: calls come from within libc's.
#include "sim/node/container.h"

#include <cstdlib>
#include <cstring>

namespace sim {
namespace {

bool is_listed(const char* list, int dev) {
  while (*list >= '0' && *list <= '9') {
    char* end = nullptr;
    if (std::strtol(list, &end, 10) == dev) return true;
    list = *end == ',' ? end + 1 : end;
  }
  return false;
}

}  // namespace

bool lacks_render_node(int dev) {
  const char* list = std::getenv(kHiddenVariable);
  return list != nullptr && is_listed(list, dev);
}

bool is_forbidden(int dev) {
  const char* list = std::getenv(kHiddenVariable);
  return list != nullptr && std::strstr(list, ":render") == nullptr && is_listed(list, dev);
}

}  // namespace sim
