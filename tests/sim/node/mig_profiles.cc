// The tables of MIG profiles. Which profiles, placements and engines there are is from "Supported
// MIG Profiles" and "Getting Started with MIG" of NVIDIA's MIG user guide. Memory and
// multiprocessors are those that `nvidia-smi mig -lgip` prints in reports; of each product the
// report is named.
#include "sim/node/mig_profiles.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace sim {
namespace {

using Kind = MigKind;
constexpr uint32_t kAnyOf7 = 0x7f, kAnyOf4 = 0xf, kEven = 0x55, k024 = 0x15, k02 = 0x5, k04 = 0x11,
                   k0 = 0x1;

// NVIDIA/go-nvml, pkg/nvml/mock/gpus/a30.go. The ids are choices: 14 and 21 are those of another
// product of four slices, in bigstack-oss/cubecos issue 312.
constexpr MigProfile kA30[] = {
    {"1g.6gb", 14, Kind::k1Slice, 1, 4, 5836, 14, 1, 0, 0, 0, 1, kAnyOf4},
    {"1g.6gb+me", 21, Kind::k1SliceMedia, 1, 1, 5836, 14, 1, 1, 1, 1, 1, kAnyOf4},
    {"2g.12gb", 5, Kind::k2Slice, 2, 2, 11672, 28, 2, 2, 0, 0, 2, k02},
    {"2g.12gb+me", 6, Kind::k2SliceMedia, 2, 1, 11672, 28, 2, 2, 1, 1, 2, k02},
    {"4g.24gb", 0, Kind::k4Slice, 4, 1, 23344, 56, 4, 4, 1, 1, 4, k0},
};

// The user guide's listing of A100-SXM4-40GB, and NVIDIA/go-nvml, pkg/nvml/mock/gpus/a100.go.
constexpr MigProfile kA100_40[] = {
    {"1g.5gb", 19, Kind::k1Slice, 1, 7, 4864, 14, 1, 0, 0, 0, 1, kAnyOf7},
    {"1g.5gb+me", 20, Kind::k1SliceMedia, 1, 1, 4864, 14, 1, 1, 1, 1, 1, kAnyOf7},
    {"1g.10gb", 15, Kind::k1SliceMemory, 1, 4, 9856, 14, 1, 1, 0, 0, 2, kEven},
    {"2g.10gb", 14, Kind::k2Slice, 2, 3, 9856, 28, 2, 1, 0, 0, 2, k024},
    {"3g.20gb", 9, Kind::k3Slice, 3, 2, 19968, 42, 3, 2, 0, 0, 4, k04},
    {"4g.20gb", 5, Kind::k4Slice, 4, 1, 19968, 56, 4, 2, 0, 0, 4, k0},
    {"7g.40gb", 0, Kind::k7Slice, 7, 1, 40192, 98, 7, 5, 1, 1, 8, k0},
};

// The same sources; 19,968 MiB of 2g.20gb is in XuehaiPan/nvitop PR 8 too.
constexpr MigProfile kA100_80[] = {
    {"1g.10gb", 19, Kind::k1Slice, 1, 7, 9856, 14, 1, 0, 0, 0, 1, kAnyOf7},
    {"1g.10gb+me", 20, Kind::k1SliceMedia, 1, 1, 9856, 14, 1, 1, 1, 1, 1, kAnyOf7},
    {"1g.20gb", 15, Kind::k1SliceMemory, 1, 4, 19968, 14, 1, 1, 0, 0, 2, kEven},
    {"2g.20gb", 14, Kind::k2Slice, 2, 3, 19968, 28, 2, 1, 0, 0, 2, k024},
    {"3g.40gb", 9, Kind::k3Slice, 3, 2, 40192, 42, 3, 2, 0, 0, 4, k04},
    {"4g.40gb", 5, Kind::k4Slice, 4, 1, 40192, 56, 4, 2, 0, 0, 4, k0},
    {"7g.80gb", 0, Kind::k7Slice, 7, 1, 80384, 98, 7, 5, 1, 1, 8, k0},
};

// jbarrow.ai, "Nvidia MIG" (a listing of H100 80GB HBM3): 9.75, 19.62, 39.50 and 79.25 GiB.
constexpr MigProfile kH100_80[] = {
    {"1g.10gb", 19, Kind::k1Slice, 1, 7, 9984, 16, 1, 1, 1, 0, 1, kAnyOf7},
    {"1g.10gb+me", 20, Kind::k1SliceMedia, 1, 1, 9984, 16, 1, 1, 1, 1, 1, kAnyOf7},
    {"1g.20gb", 15, Kind::k1SliceMemory, 1, 4, 20096, 26, 1, 1, 1, 0, 2, kEven},
    {"2g.20gb", 14, Kind::k2Slice, 2, 3, 20096, 32, 2, 2, 2, 0, 2, k024},
    {"3g.40gb", 9, Kind::k3Slice, 3, 2, 40448, 60, 3, 3, 3, 0, 4, k04},
    {"4g.40gb", 5, Kind::k4Slice, 4, 1, 40448, 64, 4, 4, 4, 0, 4, k0},
    {"7g.80gb", 0, Kind::k7Slice, 7, 1, 81152, 132, 8, 7, 7, 1, 8, k0},
};

// NVIDIA/mig-parted issue 120: 16.00, 32.25 and 69.50 GiB; 7g.141gb is a choice (README).
constexpr MigProfile kH200[] = {
    {"1g.18gb", 19, Kind::k1Slice, 1, 7, 16384, 16, 1, 1, 1, 0, 1, kAnyOf7},
    {"1g.18gb+me", 20, Kind::k1SliceMedia, 1, 1, 16384, 16, 1, 1, 1, 1, 1, kAnyOf7},
    {"1g.35gb", 15, Kind::k1SliceMemory, 1, 4, 33024, 26, 1, 1, 1, 0, 2, kEven},
    {"2g.35gb", 14, Kind::k2Slice, 2, 3, 33024, 32, 2, 2, 2, 0, 2, k024},
    {"3g.71gb", 9, Kind::k3Slice, 3, 2, 71168, 60, 3, 3, 3, 0, 4, k04},
    {"4g.71gb", 5, Kind::k4Slice, 4, 1, 71168, 64, 4, 4, 4, 0, 4, k0},
    {"7g.141gb", 0, Kind::k7Slice, 7, 1, 142976, 132, 8, 7, 7, 1, 8, k0},
};

// NVIDIA/mig-parted PR 187: 20.50 and 44.25 GiB; from 3g on a choice (README).
constexpr MigProfile kB200[] = {
    {"1g.23gb", 19, Kind::k1Slice, 1, 7, 20992, 18, 2, 1, 1, 0, 1, kAnyOf7},
    {"1g.23gb+me", 20, Kind::k1SliceMedia, 1, 1, 20992, 18, 2, 1, 1, 1, 1, kAnyOf7},
    {"1g.45gb", 15, Kind::k1SliceMemory, 1, 4, 45312, 30, 2, 1, 1, 0, 2, kEven},
    {"2g.45gb", 14, Kind::k2Slice, 2, 3, 45312, 36, 4, 2, 2, 0, 2, k024},
    {"3g.90gb", 9, Kind::k3Slice, 3, 2, 90624, 70, 6, 3, 3, 0, 4, k04},
    {"4g.90gb", 5, Kind::k4Slice, 4, 1, 90624, 72, 8, 4, 4, 0, 4, k0},
    {"7g.180gb", 0, Kind::k7Slice, 7, 1, 182272, 148, 16, 7, 7, 1, 8, k0},
};

// NVIDIA/gpu-operator PR 1303: 20.00 and 45.50 GiB; from 3g on a choice (README).
constexpr MigProfile kGb200[] = {
    {"1g.24gb", 19, Kind::k1Slice, 1, 7, 20480, 18, 2, 1, 1, 0, 1, kAnyOf7},
    {"1g.24gb+me", 20, Kind::k1SliceMedia, 1, 1, 20480, 18, 2, 1, 1, 1, 1, kAnyOf7},
    {"1g.47gb", 15, Kind::k1SliceMemory, 1, 4, 46592, 32, 2, 1, 1, 0, 2, kEven},
    {"2g.47gb", 14, Kind::k2Slice, 2, 3, 46592, 38, 4, 2, 2, 0, 2, k024},
    {"3g.95gb", 9, Kind::k3Slice, 3, 2, 93184, 72, 6, 3, 3, 0, 4, k04},
    {"4g.95gb", 5, Kind::k4Slice, 4, 1, 93184, 74, 8, 4, 4, 0, 4, k0},
    {"7g.189gb", 0, Kind::k7Slice, 7, 1, 188416, 152, 16, 7, 7, 1, 8, k0},
};

constexpr MigCard kCards[] = {
    {"a30", 4, 4, kA30},           {"a100-40gb", 7, 8, kA100_40}, {"a100-80gb", 7, 8, kA100_80},
    {"h100-80gb", 7, 8, kH100_80}, {"h200", 7, 8, kH200},         {"b200", 7, 8, kB200},
    {"gb200", 7, 8, kGb200},
};

template <typename Is>
const MigProfile* find(const MigCard& card, Is is) {
  const auto found = std::find_if(card.profiles.begin(), card.profiles.end(), is);
  return found != card.profiles.end() ? &*found : nullptr;
}

// By NVML_COMPUTE_INSTANCE_PROFILE_*; the last two are second ones of one slice and of seven, which
// no product here has.
constexpr uint32_t kComputeSlices[kComputeKinds] = {1, 2, 3, 4, 7, 8, 6};

}  // namespace

const MigProfile* MigCard::by_id(uint32_t id) const {
  return find(*this, [id](const MigProfile& profile) { return profile.id == id; });
}

const MigProfile* MigCard::by_kind(uint32_t kind) const {
  return find(*this, [kind](const MigProfile& profile) { return uint32_t(profile.kind) == kind; });
}

const MigProfile* MigCard::by_name(std::string_view name) const {
  return find(*this, [name](const MigProfile& profile) { return profile.name == name; });
}

uint32_t MigCard::multiprocessors_per_slice() const {
  return profiles.front().multiprocessors;
}

const MigCard* mig_card(std::string_view key) {
  for (const MigCard& card : kCards) {
    if (card.key == key) return &card;
  }
  return nullptr;
}

const MigCard* mig_card(uint32_t number) {
  return number >= 1 && number <= std::size(kCards) ? &kCards[number - 1] : nullptr;
}

uint32_t mig_card_number(const MigCard& card) {
  return static_cast<uint32_t>(&card - kCards) + 1;
}

uint32_t gpu_instance_id(const MigCard& card, uint32_t start, uint32_t size) {
  return card.memory / size - 1 + start / size;
}

uint32_t compute_slices_of(uint32_t profile_id) {
  return profile_id < kComputeKinds ? kComputeSlices[profile_id] : 0;
}

uint32_t compute_profile_id(uint32_t slices) {
  uint32_t id = 0;
  while (kComputeSlices[id] != slices) ++id;
  return id;
}

// As NVIDIA/go-nvml's mocks have them: two slices at even places, three at 0 and 4 but not in four,
// others at 0.
uint32_t compute_places(uint32_t gpu_slices, uint32_t slices) {
  if (slices == 0 || (slices == 3 && gpu_slices == 4)) return 0;
  const uint32_t step = slices == 3 ? 4 : slices;
  uint32_t places = 0;
  for (uint32_t start = 0; start + slices <= gpu_slices; start += step) places |= 1U << start;
  return places;
}

}  // namespace sim
