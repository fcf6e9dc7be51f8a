// Makes the page and counts generations; see fork_page.h.
#include "shim/base/fork_page.h"

#include <sys/mman.h>

// glibc's function behind pthread_atfork, which is itself linked into each library. musl has
// another one, so it is weak: its absence must not keep the library from being loaded there.
extern "C" [[gnu::weak]] int __register_atfork(void (*prepare)(), void (*parent)(), void (*child)(),
                                               void* library);
extern "C" void* __dso_handle;

namespace fracgpu {
namespace {

// Not wiped, so that a child counts on from its parent's number.
std::atomic<uint32_t> last_generation{0};

// Wipes the page in a child, if the kernel does not.
void wipe() {
  ForkPage* const page = fork_page.load(std::memory_order_relaxed);
  if (page == nullptr) return;
  page->process.store(nullptr, std::memory_order_relaxed);
  page->generation.store(0, std::memory_order_relaxed);
  page->sections.store(0, std::memory_order_relaxed);
  page->forking.store(0, std::memory_order_relaxed);
}

}  // namespace

ForkPage* make_fork_page() {
  if (ForkPage* const known = fork_page.load(std::memory_order_acquire); known != nullptr) {
    return known;
  }
  constexpr size_t kPage = 4096;
  void* const bytes =
      mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (bytes == MAP_FAILED) return nullptr;
  // A second handler, from a thread that is here at the same time, does no harm.
  if (madvise(bytes, kPage, MADV_WIPEONFORK) != 0 &&
      (__register_atfork == nullptr ||
       __register_atfork(nullptr, nullptr, wipe, &__dso_handle) != 0)) {
    munmap(bytes, kPage);
    return nullptr;
  }
  auto* const page = static_cast<ForkPage*>(bytes);
  ForkPage* expected = nullptr;
  if (fork_page.compare_exchange_strong(expected, page)) return page;
  munmap(bytes, kPage);
  return expected;
}

uint32_t fork_generation() {
  ForkPage* const page = make_fork_page();
  if (page == nullptr) return 0;
  const uint32_t known = page->generation.load(std::memory_order_relaxed);
  if (known != 0) return known;
  const uint32_t fresh = last_generation.fetch_add(1, std::memory_order_relaxed) + 1;
  uint32_t expected = 0;
  return page->generation.compare_exchange_strong(expected, fresh) ? fresh : expected;
}

}  // namespace fracgpu
