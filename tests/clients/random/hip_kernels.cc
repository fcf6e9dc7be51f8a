// Kernels whose lanes have memory of their own, and modules.
#include <algorithm>
#include <atomic>
#include <vector>

#include "hip_actor.h"
#include "tests/clients/code_image.h"
#include "tests/clients/hsa_dispatch.h"

namespace client::hip {
namespace {

// Kernels in a queue that is made before the cap is full: where memory is out, ROCr 6.4.3 ends a
// program that makes a queue, on a card of its own too.
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

  // A queue whose kernel gets no memory at all is of no use any more.
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

class Modules : public Actor {
 public:
  using Actor::Actor;

  void move() override {
    if (!modules_.empty() && chance(modules_.size() < 6 ? 40 : 60)) {
      std::swap(modules_[below(modules_.size())], modules_.back());
      unload_last();
      return;
    }
    const std::string image = amd_code_object(size());
    void* module = nullptr;
    const int rc = call("hipModuleLoadData", &module, static_cast<const void*>(image.data()));
    // What HIP 5 and 6 make of ROCr's lack of memory.
    constexpr int kNotInitialized = 303, kNoBinary = 209;
    const bool is_full = rc == kNotInitialized || rc == kNoBinary;
    if (good(is_full ? kOutOfMemory : rc, "hipModuleLoadData")) modules_.push_back(module);
  }

  void clear() override {
    while (!modules_.empty()) unload_last();
  }

 private:
  void unload_last() {
    good(call("hipModuleUnload", modules_.back()), "hipModuleUnload");
    modules_.pop_back();
  }

  std::vector<void*> modules_;
};

}  // namespace

std::unique_ptr<Actor> make_kernels(const World& world, uint64_t seed) {
  return std::make_unique<Kernels>(world, seed);
}
std::unique_ptr<Actor> make_modules(const World& world, uint64_t seed) {
  return std::make_unique<Modules>(world, seed);
}

}  // namespace client::hip
