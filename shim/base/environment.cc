// Reads the environment; see environment.h.
#include "shim/base/environment.h"

#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

namespace fracgpu {

const char* trusted_environment(const char* name) {
  return secure_getenv(name);
}

const char* const* trusted_variables() {
  static constexpr const char* kNone[] = {nullptr};
  return environ == nullptr || getauxval(AT_SECURE) != 0 ? kNone : environ;
}

const char* vendor_environment(const char* name) {
  return getenv(name);
}

const char* EnvironmentCopy::read() {
  const char* fresh = unset();
  size_t size = 0;
  if (const char* const text = trusted_environment(name_); text != nullptr) {
    size = strlen(text) + 1;
    void* const bytes =
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED) return nullptr;
    // All except the NUL, which is already there: the program may be writing this text.
    fresh = static_cast<const char*>(memcpy(bytes, text, size - 1));
  }
  const char* known = nullptr;
  if (!text_.compare_exchange_strong(known, fresh, std::memory_order_acq_rel)) {
    if (size > 0) munmap(const_cast<char*>(fresh), size);
    fresh = known;
  }
  return fresh != unset() ? fresh : nullptr;
}

void EnvironmentCopy::forget() {
  const char* const text = text_.exchange(nullptr);
  if (text != nullptr && text != unset()) munmap(const_cast<char*>(text), strlen(text) + 1);
}

}  // namespace fracgpu
