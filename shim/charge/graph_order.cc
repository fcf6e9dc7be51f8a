#include "shim/charge/graph_order.h"

namespace fracgpu {

GraphOrder::GraphOrder(size_t step_count, const GraphEdge* edges, size_t edge_count)
    : order_(step_count, kMostBytes),
      waits_for_(step_count, kMostBytes),
      first_(step_count + 1, kMostBytes),
      next_(edge_count, kMostBytes),
      sound_(order_ && waits_for_ && first_ && next_ && enter(step_count, edges, edge_count) &&
             sort(step_count)) {}

bool GraphOrder::enter(size_t step_count, const GraphEdge* edges, size_t edge_count) {
  for (size_t i = 0; i < edge_count; ++i) {
    if (edges[i].from >= step_count || edges[i].to >= step_count) return false;
    ++waits_for_[edges[i].to];
    ++first_[edges[i].from + 1];
  }
  for (size_t i = 0; i < step_count; ++i) first_[i + 1] += first_[i];
  Scratch<uint32_t> filled(step_count, kMostBytes);
  if (!filled) return false;
  for (size_t i = 0; i < edge_count; ++i) {
    const uint32_t from = edges[i].from;
    next_[first_[from] + filled[from]++] = edges[i].to;
  }
  return true;
}

bool GraphOrder::sort(size_t step_count) {
  size_t ordered = 0;
  for (uint32_t i = 0; i < step_count; ++i) {
    if (waits_for_[i] == 0) order_[ordered++] = i;
  }
  for (size_t at = 0; at < ordered; ++at) {
    for_each_next(order_[at], [&](uint32_t next) {
      if (--waits_for_[next] == 0) order_[ordered++] = next;
    });
  }
  return ordered == step_count;
}

}  // namespace fracgpu
