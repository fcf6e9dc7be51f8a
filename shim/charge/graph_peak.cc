// Determines which releases each allocation comes after; see graph_peak.h.
#include "shim/charge/graph_peak.h"

#include <algorithm>

namespace fracgpu {
namespace {

using Kind = GraphStep::Kind;

size_t count_of(Kind kind, const GraphStep* steps, size_t count) {
  return static_cast<size_t>(std::count_if(
      steps, steps + count, [&](const GraphStep& step) { return step.kind == kind; }));
}

// The steps that allocate, by address.
class Allocators {
 public:
  Allocators(const GraphStep* steps, size_t step_count, size_t allocations)
      : by_address_(allocations, GraphOrder::kMostBytes) {
    if (!by_address_) return;
    for (uint32_t i = 0; i < step_count; ++i) {
      if (steps[i].kind == Kind::allocation) by_address_[count_++] = {steps[i].address, i};
    }
    std::sort(by_address_.data(), by_address_.data() + count_, earlier);
  }

  explicit operator bool() const { return static_cast<bool>(by_address_); }

  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t step_of(uint64_t address) {
    const ByAddress* const end = by_address_.data() + count_;
    const ByAddress* const found = std::lower_bound(by_address_.data(), by_address_.data() + count_,
                                                    ByAddress{address, 0}, earlier);
    return found != end && found->key == address ? found->step : kNone;
  }

 private:
  struct ByAddress {
    uint64_t key = 0;
    uint32_t step = 0;
  };
  static bool earlier(const ByAddress& a, const ByAddress& b) { return a.key < b.key; }

  Scratch<ByAddress> by_address_;
  size_t count_ = 0;
};

// The releases of a graph, and the allocation from which on each may be used again. Allocations and
// releases are numbered in their order.
class Reuse {
 public:
  Reuse(const GraphStep* steps, size_t step_count, const GraphOrder& order)
      : steps_(steps),
        step_count_(step_count),
        order_(order),
        releases_(count_of(Kind::release, steps, step_count)),
        allocations_(count_of(Kind::allocation, steps, step_count)),
        allocators_(steps, step_count, allocations_) {}

  // False if there is not enough host memory.
  bool find() {
    if (!after_ || !released_ || !usable_ || !missed_ || !allocation_of_ || !sure_after_ ||
        !becomes_usable_ || !allocators_) {
      return false;
    }
    for (size_t at = 0; at < step_count_; ++at) {
      const uint32_t step = order_[at];
      if (steps_[step].kind == Kind::allocation) pass_allocation(step);
      if (steps_[step].kind == Kind::release) pass_release(step);
      order_.for_each_next(step, [&](uint32_t next) {
        for (size_t word = 0; word < words_; ++word)
          after_[next * words_ + word] |= after_[step * words_ + word];
      });
    }
    // From the last one on: the least that holds for all later ones.
    sure_after_[allocations_] = UINT32_MAX;
    for (size_t i = allocations_; i-- > 0;)
      sure_after_[i] = std::min(sure_after_[i], sure_after_[i + 1]);
    return true;
  }

  // The units that the device's allocations need at once.
  uint64_t peak_of(int device) {
    const auto is_of_device = [&](const GraphStep& step) {
      return step.kind == Kind::allocation && step.device == device;
    };
    if (std::none_of(steps_, steps_ + step_count_, is_of_device)) return 0;
    for (size_t i = 0; i <= allocations_; ++i) becomes_usable_[i] = 0;
    for (size_t release = 0; release < releases_; ++release) {
      if (counts(release) && steps_[released_[release]].device == device)
        becomes_usable_[usable_[release]] += steps_[released_[release]].units;
    }
    uint64_t peak = 0, free = 0;
    for (size_t at = 0; at < step_count_; ++at) {
      const GraphStep& step = steps_[order_[at]];
      if (step.kind != Kind::allocation) continue;
      free += becomes_usable_[allocation_of_[order_[at]]];
      if (step.device != device) continue;
      const uint64_t used_again = std::min(free, step.units);
      free -= used_again;
      peak += step.units - used_again;
    }
    return peak;
  }

 private:
  static constexpr size_t kMostBytes = GraphOrder::kMostBytes;

  bool comes_after(uint32_t step, size_t bit) const {
    return (after_[step * words_ + bit / 64] >> bit % 64 & 1) != 0;
  }
  void set_passed(uint32_t step, size_t bit) {
    after_[step * words_ + bit / 64] |= uint64_t{1} << bit % 64;
  }

  void pass_allocation(uint32_t step) {
    // A release that the step does not come after may not be used before the next allocation.
    for (size_t release = 0; release < releases_; ++release) {
      if (comes_after(step, release)) continue;
      usable_[release] = allocation_ + 1;
      ++missed_[release];
    }
    uint32_t& sure = sure_after_[allocation_];
    while (sure < allocation_ && comes_after(step, first_allocation_ + sure)) ++sure;
    set_passed(step, first_allocation_ + allocation_);
    allocation_of_[step] = allocation_++;
  }

  // Memory of another graph counts as never released.
  void pass_release(uint32_t step) {
    released_[release_] = allocators_.step_of(steps_[step].address);
    set_passed(step, release_++);
  }

  // The driver may use any order in which the steps may run. So a release counts only if, in every
  // order, all allocations that may not use it come before all that may.
  bool counts(size_t release) const {
    return released_[release] != Allocators::kNone && missed_[release] == usable_[release] &&
           sure_after_[usable_[release]] >= usable_[release];
  }

  const GraphStep* const steps_;
  const size_t step_count_;
  const GraphOrder& order_;
  const size_t releases_, allocations_;
  Allocators allocators_;

  // For each step, the set of what it comes after: a bit for each release, and behind them one for
  // each allocation.
  const size_t first_allocation_ = (releases_ + 63) / 64 * 64;
  const size_t words_ = (first_allocation_ + allocations_ + 63) / 64;
  Scratch<uint64_t> after_{step_count_ * words_, kMostBytes};
  Scratch<uint32_t> released_{releases_, kMostBytes};  // step that allocates the released memory
  Scratch<uint32_t> usable_{releases_, kMostBytes};    // first allocation that may use it again
  Scratch<uint32_t> missed_{releases_, kMostBytes};    // number of allocations that may not use it
  Scratch<uint32_t> allocation_of_{step_count_, kMostBytes};
  // How many allocations, from the first one on, each is sure to come after.
  Scratch<uint32_t> sure_after_{allocations_ + 1, kMostBytes};
  Scratch<uint64_t> becomes_usable_{allocations_ + 1, kMostBytes};  // at each allocation, in units

  uint32_t allocation_ = 0;  // number that were passed
  size_t release_ = 0;
};

}  // namespace

bool add_graph_peaks(const GraphStep* steps, size_t step_count, const GraphEdge* edges,
                     size_t edge_count, uint64_t* peaks, int devices) {
  const GraphOrder order(step_count, edges, edge_count);
  if (!order) return false;
  Reuse reuse(steps, step_count, order);
  if (!reuse.find()) return false;
  for (int device = 0; device < devices; ++device) peaks[device] += reuse.peak_of(device);
  return true;
}

}  // namespace fracgpu
