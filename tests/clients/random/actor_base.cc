// What the actors of every API have in common; see actor_base.h.
#include "actor_base.h"

#include <algorithm>

namespace client {

bool Actor::good(int result, const char* what, uint64_t needed) {
  ++tally_.done;
  if (api.out_of_memory(result)) {
    ++tally_.refused;
    const uint64_t free = world_.alone ? api.free_bytes() : 0;
    if (free > 0 && free >= needed && tally_.bad.empty()) {
      tally_.bad = std::string(what) + " refused " + std::to_string(needed) + " with " +
                   std::to_string(free) + " free";
    }
  } else if (result != 0 && tally_.bad.empty()) {
    tally_.bad = std::string(what) + "=" + std::to_string(result);
  }
  return result == 0;
}

uint64_t Actor::size() {
  int bits = 0;
  while ((uint64_t{1} << (bits + 1)) <= world_.max_bytes) ++bits;
  const uint64_t top = uint64_t{1} << below(static_cast<uint64_t>(bits) + 1);
  return std::min(world_.max_bytes, top + below(top));
}

}  // namespace client
