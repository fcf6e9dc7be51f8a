// The steps of a graph in an order in which they may run.
#pragma once

#include "shim/base/scratch.h"

namespace fracgpu {

// `to` runs after `from`: indices of steps.
struct GraphEdge {
  uint32_t from, to;
};

class GraphOrder {
 public:
  GraphOrder(size_t step_count, const GraphEdge* edges, size_t edge_count);

  // False if there is no order, as with edges in a cycle, or not enough host memory to find it.
  explicit operator bool() const { return sound_; }

  // The step that runs at position `at`.
  uint32_t operator[](size_t at) const { return order_[at]; }

  // Calls visit(step) for each step that waits for this one.
  template <typename Visit>
  void for_each_next(uint32_t step, Visit visit) const {
    for (uint32_t i = first_[step]; i < first_[step + 1]; ++i) visit(next_[i]);
  }

  // Enough for 11,000 pairs of an allocation and a release in a row, which take 0.3 s; 1,000 take 1
  // ms, 30,000 would take 2.3 s.
  static constexpr size_t kMostBytes = 64u << 20;

 private:
  bool enter(size_t step_count, const GraphEdge* edges, size_t edge_count);
  bool sort(size_t step_count);

  Scratch<uint32_t> order_;
  Scratch<uint32_t> waits_for_;  // how many others each step still waits for
  // The indices of each step's successors: those of step i begin at first_[i].
  Scratch<uint32_t> first_, next_;
  bool sound_;
};

}  // namespace fracgpu
