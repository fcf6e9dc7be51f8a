// Managed memory, which may be on the host. (FRACGPU_SIM_MANAGED=late has it there until it is
// prefetched.)
#include <algorithm>
#include <vector>

#include "actor.h"

namespace client {
namespace {

constexpr uint64_t kPage = 2u << 20;

class Managed : public Actor {
 public:
  using Actor::Actor;

  void move() override {
    if (!held_.empty() && chance(held_.size() < 10 ? 40 : 60)) {
      std::swap(held_[below(held_.size())], held_.back());
      free_last();
    } else if (!held_.empty() && chance(30)) {
      const CUdeviceptr address = held_[below(held_.size())].address;
      good(call("cuMemPrefetchAsync", address, size_t{1}, 0, CUstream{}), "cuMemPrefetchAsync");
    } else {
      CUdeviceptr address = 0;
      const size_t bytes = size();
      const uint64_t pages = (bytes + kPage - 1) / kPage * kPage;
      if (!good(call("cuMemAllocManaged", &address, bytes, 1u), "cuMemAllocManaged", pages)) return;
      if (is_alone(address)) tally_.managed += pages;
      held_.push_back({address, pages});
    }
  }

  void clear() override {
    while (!held_.empty()) free_last();
  }

 private:
  struct Held {
    CUdeviceptr address;
    uint64_t bytes;
  };

  // Small ones share pages.
  bool is_alone(CUdeviceptr address) const {
    return std::none_of(held_.begin(), held_.end(),
                        [=](const Held& held) { return held.address / kPage == address / kPage; });
  }

  void free_last() {
    const Held last = held_.back();
    good(call("cuMemFree_v2", last.address), "cuMemFree");
    held_.pop_back();
    if (is_alone(last.address)) tally_.managed -= last.bytes;
  }

  std::vector<Held> held_;
};

}  // namespace

std::unique_ptr<Actor> make_managed(const World& world, uint64_t seed) {
  return std::make_unique<Managed>(world, seed);
}

}  // namespace client
