// cuMemAlloc and its relatives.
#include <vector>

#include "actor.h"

namespace client {
namespace {

class Linear : public Actor {
 public:
  using Actor::Actor;

  void move() override {
    if (!held_.empty() && chance(held_.size() < 40 ? 40 : 60)) {
      std::swap(held_[below(held_.size())], held_.back());
      free_last();
      return;
    }
    CUdeviceptr address = 0;
    size_t pitch = 0;
    size_t bytes = size();
    int result = 0;
    if (below(4) == 0) {
      const size_t width = below(20000) + 1, height = bytes / width + 1;
      bytes = (width + 511) / 512 * 512 * height;
      result = call("cuMemAllocPitch_v2", &address, &pitch, width, height, 4u);
    } else {
      result = call("cuMemAlloc_v2", &address, bytes);
    }
    // Whole pages, or a share of one.
    constexpr uint64_t kPage = 2u << 20;
    const uint64_t needed = (bytes + kPage - 1) / kPage * kPage;
    if (good(result, "allocate", needed)) held_.push_back(address);
  }

  void clear() override {
    while (!held_.empty()) free_last();
  }

 private:
  void free_last() {
    good(call("cuMemFree_v2", held_.back()), "cuMemFree");
    held_.pop_back();
  }

  std::vector<CUdeviceptr> held_;
};

}  // namespace

std::unique_ptr<Actor> make_linear(const World& world, uint64_t seed) {
  return std::make_unique<Linear>(world, seed);
}

}  // namespace client
