// Looks for the configuration of a cap; see cap_configured.h.
#include "shim/config/cap_configured.h"

#include "shim/config/ceiling.h"
#include "shim/config/environment_limits.h"
#include "shim/config/trusted_file.h"

namespace fracgpu {

// Not zero at first, so that it is in .data. Every process writes it. .data has a page that the
// loader has already written, while .bss would get a page for this alone.
std::atomic<CapAnswer> cap_answer{CapAnswer::unknown};

bool look_for_cap() {
  const bool configured = limit_is_in_environment() || trusted_file_is_there(kCeilingFile);
  cap_answer.store(configured ? CapAnswer::yes : CapAnswer::no, std::memory_order_relaxed);
  return configured;
}

}  // namespace fracgpu
