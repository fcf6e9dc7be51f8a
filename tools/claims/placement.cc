// Packs tight; see placement.h.
#include "tools/claims/placement.h"

#include <algorithm>

namespace fracgpu::tools {
namespace {

using claim_table_layout::kMaxGpus;

bool may_use(const PlacementRequest& request, uint32_t gpu) {
  return request.count == 0 ? request.exact[gpu] > 0 : (request.allowed >> gpu & 1) != 0;
}

std::vector<uint32_t> usable(const PlacementRequest& request) {
  std::vector<uint32_t> gpus;
  for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
    if (may_use(request, gpu)) gpus.push_back(gpu);
  }
  return gpus;
}

}  // namespace

std::optional<Shares> place(const PlacementRequest& request, const Shares& free) {
  std::vector<uint32_t> gpus = usable(request);
  const auto has_room = [&](uint32_t gpu) {
    return free[gpu] >= (request.count == 0 ? request.exact[gpu] : request.each);
  };
  if (request.count == 0) {
    if (!std::all_of(gpus.begin(), gpus.end(), has_room)) return std::nullopt;
    return request.exact;
  }
  std::erase_if(gpus, [&](uint32_t gpu) { return !has_room(gpu); });
  if (gpus.size() < request.count) return std::nullopt;
  std::stable_sort(gpus.begin(), gpus.end(),
                   [&](uint32_t a, uint32_t b) { return free[a] < free[b]; });
  Shares eighths{};
  for (uint32_t i = 0; i < request.count; ++i)
    eighths[gpus[i]] = static_cast<uint8_t>(request.each);
  return eighths;
}

uint64_t earmark(const PlacementRequest& request, const Shares& free) {
  std::vector<uint32_t> gpus = usable(request);
  std::stable_sort(gpus.begin(), gpus.end(),
                   [&](uint32_t a, uint32_t b) { return free[a] > free[b]; });
  if (request.count != 0 && gpus.size() > request.count) gpus.resize(request.count);
  uint64_t marked = 0;
  for (const uint32_t gpu : gpus) marked |= uint64_t{1} << gpu;
  return marked;
}

std::vector<std::optional<Shares>> serve(const std::vector<PlacementRequest>& requests,
                                         Shares free) {
  std::vector<std::optional<Shares>> served;
  for (const PlacementRequest& request : requests) {
    served.push_back(place(request, free));
    if (served.back().has_value()) {
      for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) free[gpu] -= (*served.back())[gpu];
    } else {
      const uint64_t marked = earmark(request, free);
      for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
        if ((marked >> gpu & 1) != 0) free[gpu] = 0;
      }
    }
  }
  return served;
}

}  // namespace fracgpu::tools
