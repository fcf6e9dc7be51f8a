// Counts sections and forks in the page that is wiped in children; see unforked.h.
#include "shim/base/unforked.h"

#include <errno.h>

#include "shim/base/clock.h"
#include "shim/base/real_dlfcn.h"
#include "shim/base/static_spin_lock.h"

// See fork_page.cc.
extern "C" [[gnu::weak]] int __register_atfork(void (*prepare)(), void (*parent)(), void (*child)(),
                                               void* library);
extern "C" void* __dso_handle;

namespace fracgpu {
namespace {

constexpr uint64_t kLongest_ms = 1000;
constexpr long kPause_ns = 20'000;

struct OfThread {
  uint32_t sections = 0;
  bool forks = false;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local OfThread of_thread;

template <typename Done>
void wait_until(Done done) {
  const int error = errno;
  for (uint64_t end = 0; !done(); sleep_ns(kPause_ns)) {
    const uint64_t now = coarse_now_ms();
    if (end == 0) end = now + kLongest_ms;
    if (now >= end) break;
  }
  errno = error;
}

void before_fork() {
  ForkPage* const page = fork_page.load(std::memory_order_acquire);
  if (page == nullptr) return;
  of_thread.forks = true;
  page->forking.fetch_add(1);
  // Does not wait for this thread's own sections: a driver may fork in a call that we make.
  wait_until([&] { return page->sections.load() <= of_thread.sections; });
}

void after_fork() {
  if (!of_thread.forks) return;
  of_thread.forks = false;
  fork_page.load(std::memory_order_acquire)->forking.fetch_sub(1);
}

// A child's page is zero.
void after_fork_in_child() {
  of_thread.forks = false;
}

void register_handlers() {
  static constinit std::atomic<bool> registered{false};
  static constinit StaticSpinLock registering;
  if (registered.load(std::memory_order_acquire)) return;
  const Locked<StaticSpinLock> lock(registering);
  if (registered.load(std::memory_order_relaxed)) return;
  if (__register_atfork != nullptr) {
    __register_atfork(before_fork, after_fork, after_fork_in_child, &__dso_handle);
  } else if (const auto of_musl =
                 real_dl_function<int (*)(void (*)(), void (*)(), void (*)())>("pthread_atfork")) {
    of_musl(before_fork, after_fork, after_fork_in_child);
  }
  registered.store(true, std::memory_order_release);
}

}  // namespace

void Unforked::enter() {
  register_handlers();
  page_ = make_fork_page();
  if (page_ == nullptr) return;
  generation_ = fork_generation();
  const auto try_to = [&] {
    page_->sections.fetch_add(1);
    // A fork's other handlers, in the forking thread, must not wait for that fork.
    if (of_thread.sections > 0 || of_thread.forks || page_->forking.load() == 0) return true;
    page_->sections.fetch_sub(1);
    return false;
  };
  bool entered = false;
  wait_until([&] { return entered = try_to(); });
  if (!entered) page_->sections.fetch_add(1);
  ++of_thread.sections;
}

void Unforked::leave() {
  if (page_ == nullptr) return;
  --of_thread.sections;
  // A child that was forked in the section has a page without that section.
  if (page_->generation.load() == generation_) page_->sections.fetch_sub(1);
}

bool Unforked::is_awaited() {
  ForkPage* const page = fork_page.load(std::memory_order_acquire);
  return page != nullptr && page->forking.load() != 0 && !of_thread.forks;
}

}  // namespace fracgpu
