// Kernels with scratch memory.
#include <atomic>

#include "hip_actor.h"
#include "tests/clients/hsa_dispatch.h"

namespace client::hip {
namespace {

// The queue is created before the cap is full: ROCr 6.4.3 aborts a program that creates a queue
// while memory is full, also without the library.
class Kernels : public Actor {
 public:
  Kernels(const World& world, uint64_t seed) : Actor(world, seed) {
    void (*const on_error)(int, void*, void*) = [](int, void*, void* actor) {
      static_cast<Kernels*>(actor)->is_dead_ = true;
    };
    good(call("hsa_queue_create", agent(), 1024u, 0u, on_error, static_cast<void*>(this),
              UINT32_MAX, UINT32_MAX, &queue_),
         "hsa_queue_create");
  }

  // ROCr disables a queue whose kernel gets no scratch memory at all.
  void move() override {
    if (queue_ == nullptr || chance(70)) return;
    const auto bytes = static_cast<uint32_t>(chance(25) ? 16384 : below(4096));
    const bool has_ended = dispatch(queue_, bytes, &is_dead_);
    good(has_ended ? 0 : is_dead_ ? kHsaOutOfResources : -1, "a kernel");
    if (!has_ended) clear();
  }

  void clear() override {
    if (queue_ != nullptr) good(call("hsa_queue_destroy", queue_), "hsa_queue_destroy");
    queue_ = nullptr;
  }

 private:
  void* queue_ = nullptr;
  std::atomic<bool> is_dead_{false};
};

}  // namespace

std::unique_ptr<Actor> make_kernels(const World& world, uint64_t seed) {
  return std::make_unique<Kernels>(world, seed);
}

}  // namespace client::hip
