// Packs launches tightly; see placement.h.
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

namespace {

// The GPUs in MIG mode that a request may use, with their places in `free`.
struct Choice {
  std::vector<size_t> places;
  std::vector<MigGpu> gpus;
  std::vector<SliceMask> fixed;

  Choice(const PlacementRequest& request, const Free& free) {
    if (request.mig.kind == MigWish::Kind::none) return;
    for (size_t i = 0; i < free.divided.size(); ++i) {
      const DividedGpu& each = free.divided[i];
      if ((request.mig_allowed >> each.row & 1) == 0) continue;
      places.push_back(i);
      gpus.push_back(each.gpu);
      fixed.push_back(each.fixed);
    }
  }
};

// Takes the request's share out of `free`. If it must wait, takes what is kept for it.
std::optional<Placed> serve_one(const PlacementRequest& request, Free& free) {
  const bool instance_only = request.allowed == 0 && request.mig.kind != MigWish::Kind::none;
  if (!instance_only) {
    if (const auto eighths = place(request, free.eighths)) {
      for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) free.eighths[gpu] -= (*eighths)[gpu];
      return Placed{.eighths = *eighths};
    }
  }
  const Choice choice(request, free);
  const auto occupy = [&](const MigPlace& at) -> const MigProfile& {
    MigGpu& gpu = free.divided[choice.places[at.gpu]].gpu;
    gpu.occupied |= gpu.profiles[at.profile].mask(at.start);
    return gpu.profiles[at.profile];
  };
  if (const auto at = place_instance(choice.gpus, request.mig)) {
    const uint32_t row = free.divided[choice.places[at->gpu]].row;
    return Placed{.instance = InstancePlace{row, occupy(*at), at->start}};
  }
  if (!instance_only) {
    const uint64_t marked = earmark(request, free.eighths);
    for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
      if ((marked >> gpu & 1) != 0) free.eighths[gpu] = 0;
    }
  } else if (const auto at = earmark_instance(choice.gpus, choice.fixed, request.mig)) {
    occupy(*at);
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::optional<Placed>> serve(const std::vector<PlacementRequest>& requests, Free free) {
  std::vector<std::optional<Placed>> served;
  served.reserve(requests.size());
  for (const PlacementRequest& request : requests) served.push_back(serve_one(request, free));
  return served;
}

}  // namespace fracgpu::tools
