// Packs tight; see placement.h.
#include "tools/placement.h"

#include <algorithm>

namespace fracgpu::tools {
namespace {

using book_layout::kMaxGpus;

bool may_use(const Wish& wish, uint32_t gpu) {
  return wish.count == 0 ? wish.exact[gpu] > 0 : (wish.allowed >> gpu & 1) != 0;
}

std::vector<uint32_t> usable(const Wish& wish) {
  std::vector<uint32_t> gpus;
  for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
    if (may_use(wish, gpu)) gpus.push_back(gpu);
  }
  return gpus;
}

}  // namespace

std::optional<Parts> place(const Wish& wish, const Parts& free) {
  std::vector<uint32_t> gpus = usable(wish);
  const auto has_room = [&](uint32_t gpu) {
    return free[gpu] >= (wish.count == 0 ? wish.exact[gpu] : wish.each);
  };
  if (wish.count == 0) {
    if (!std::all_of(gpus.begin(), gpus.end(), has_room)) return std::nullopt;
    return wish.exact;
  }
  std::erase_if(gpus, [&](uint32_t gpu) { return !has_room(gpu); });
  if (gpus.size() < wish.count) return std::nullopt;
  std::stable_sort(gpus.begin(), gpus.end(),
                   [&](uint32_t a, uint32_t b) { return free[a] < free[b]; });
  Parts parts{};
  for (uint32_t i = 0; i < wish.count; ++i) parts[gpus[i]] = static_cast<uint8_t>(wish.each);
  return parts;
}

uint64_t earmark(const Wish& wish, const Parts& free) {
  std::vector<uint32_t> gpus = usable(wish);
  std::stable_sort(gpus.begin(), gpus.end(),
                   [&](uint32_t a, uint32_t b) { return free[a] > free[b]; });
  if (wish.count != 0 && gpus.size() > wish.count) gpus.resize(wish.count);
  uint64_t marked = 0;
  for (const uint32_t gpu : gpus) marked |= uint64_t{1} << gpu;
  return marked;
}

std::vector<std::optional<Parts>> serve(const std::vector<Wish>& wishes, Parts free) {
  std::vector<std::optional<Parts>> served;
  for (const Wish& wish : wishes) {
    served.push_back(place(wish, free));
    if (served.back().has_value()) {
      for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) free[gpu] -= (*served.back())[gpu];
    } else {
      const uint64_t marked = earmark(wish, free);
      for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
        if ((marked >> gpu & 1) != 0) free[gpu] = 0;
      }
    }
  }
  return served;
}

}  // namespace fracgpu::tools
