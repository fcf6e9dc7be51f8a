// Tries every place; see mig_placement.h.
#include "tools/claims/mig_placement.h"

#include <algorithm>
#include <bit>
#include <tuple>

namespace fracgpu::tools {
namespace {

constexpr uint32_t kEighths = 8;

uint32_t compute_slices(const MigGpu& gpu) {
  uint32_t most = 0;
  for (const MigProfile& profile : gpu.profiles) most = std::max(most, profile.compute);
  return most;
}

bool serves(const MigGpu& gpu, const MigProfile& profile, const MigWish& wish) {
  switch (wish.kind) {
    case MigWish::Kind::none:
      return false;
    case MigWish::Kind::profile:
      return profile.name == wish.profile;
    case MigWish::Kind::memory:
      return profile.is_plain() && profile.memory >= wish.amount;
    case MigWish::Kind::share: {
      const auto share = static_cast<uint32_t>(wish.amount);
      // A GPU has 7 compute slices but 8 memory slices. Half a GPU means 3 compute slices, so that
      // two halves fit.
      const uint32_t compute = (share * compute_slices(gpu) + kEighths / 2 - 1) / kEighths;
      return profile.is_plain() && profile.slices * kEighths >= share * gpu.slices &&
             profile.compute >= compute;
    }
  }
  return false;
}

// The number of instances of a profile that could be made at once beside the occupied slices.
uint32_t most_of(const MigProfile& profile, SliceMask occupied) {
  // Places of one profile overlap at most with the next place, so taking each free place from the
  // left is optimal.
  uint32_t count = 0;
  for (const uint8_t start : profile.starts) {
    if ((occupied & profile.mask(start)) != 0) continue;
    occupied |= profile.mask(start);
    ++count;
  }
  return count;
}

// The number of instances that others lose for each plain profile, the largest profile first.
std::vector<uint32_t> loss(const MigGpu& gpu, const std::vector<const MigProfile*>& largest_first,
                           SliceMask taken) {
  std::vector<uint32_t> lost;
  lost.reserve(largest_first.size());
  for (const MigProfile* const each : largest_first) {
    lost.push_back(most_of(*each, gpu.occupied) - most_of(*each, gpu.occupied | taken));
  }
  return lost;
}

std::vector<const MigProfile*> largest_first(const MigGpu& gpu) {
  std::vector<const MigProfile*> sorted;
  for (const MigProfile& profile : gpu.profiles) {
    if (profile.is_plain()) sorted.push_back(&profile);
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const MigProfile* a, const MigProfile* b) {
    return std::tie(a->slices, a->compute) > std::tie(b->slices, b->compute);
  });
  return sorted;
}

uint32_t free_slices(const MigGpu& gpu) {
  return gpu.slices - static_cast<uint32_t>(std::popcount(gpu.occupied));
}

}  // namespace

std::optional<size_t> profile_for(const MigGpu& gpu, const MigWish& wish) {
  std::optional<size_t> best;
  for (size_t i = 0; i < gpu.profiles.size(); ++i) {
    const MigProfile& each = gpu.profiles[i];
    if (!serves(gpu, each, wish)) continue;
    const auto size = [&](size_t at) {
      const MigProfile& profile = gpu.profiles[at];
      return std::make_tuple(profile.slices, profile.compute);
    };
    if (!best || size(i) < size(*best)) best = i;
  }
  return best;
}

std::optional<MigPlace> place_instance(const std::vector<MigGpu>& gpus, const MigWish& wish) {
  std::optional<MigPlace> best;
  std::tuple<std::vector<uint32_t>, uint32_t> least;
  for (size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    const MigGpu& there = gpus[gpu];
    const std::optional<size_t> profile = profile_for(there, wish);
    if (!profile) continue;
    const std::vector<const MigProfile*> sorted = largest_first(there);
    for (const uint8_t start : there.profiles[*profile].starts) {
      const SliceMask taken = there.profiles[*profile].mask(start);
      if ((there.occupied & taken) != 0) continue;
      std::tuple cost{loss(there, sorted, taken), free_slices(there)};
      if (best && !(cost < least)) continue;
      least = std::move(cost);
      best = MigPlace{gpu, *profile, start};
    }
  }
  return best;
}

std::optional<MigPlace> earmark_instance(const std::vector<MigGpu>& gpus,
                                         const std::vector<SliceMask>& fixed, const MigWish& wish) {
  std::optional<MigPlace> best;
  int least = 0;
  for (size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    const MigGpu& there = gpus[gpu];
    const std::optional<size_t> profile = profile_for(there, wish);
    if (!profile) continue;
    for (const uint8_t start : there.profiles[*profile].starts) {
      const SliceMask mask = there.profiles[*profile].mask(start);
      if ((fixed[gpu] & mask) != 0) continue;
      const int occupied = std::popcount(there.occupied & mask);
      if (best && occupied >= least) continue;
      least = occupied;
      best = MigPlace{gpu, *profile, start};
    }
  }
  return best;
}

}  // namespace fracgpu::tools
