// How GPUs can be divided in MIG mode: for each product the profiles of GPU instances, with what an
// instance has, and where it can be placed. The numbers and where each is published stand in
// mig_profiles.cc.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace sim {

// NVML's numbers of kinds of profiles, NVML_GPU_INSTANCE_PROFILE_*; a product has one of each kind
// at most, under an id of its own (nvml.h).
enum class MigKind : uint32_t {
  k1Slice = 0,
  k2Slice = 1,
  k3Slice = 2,
  k4Slice = 3,
  k7Slice = 4,
  k8Slice = 5,
  k6Slice = 6,
  k1SliceMedia = 7,   // REV1, "+me"
  k2SliceMedia = 8,   // REV1, "+me"
  k1SliceMemory = 9,  // REV2, with the memory of two slices
};
inline constexpr uint32_t kMigKinds = 18;

struct MigProfile {
  const char* name;  // "3g.40gb"
  uint32_t id;
  MigKind kind;
  uint32_t slices;     // of the multiprocessors
  uint32_t instances;  // at most, on an empty GPU
  uint32_t memory_mib;
  uint32_t multiprocessors, copy_engines, decoders, jpegs, ofas;
  uint32_t size;    // memory slices
  uint32_t places;  // bits: where an instance can start
};

struct MigCard {
  const char* key;  // of the simulated node's profile
  uint32_t slices;  // compute slices, and so the most MIG devices
  uint32_t memory;  // memory slices
  std::span<const MigProfile> profiles;

  const MigProfile* by_id(uint32_t id) const;
  const MigProfile* by_kind(uint32_t kind) const;
  const MigProfile* by_name(std::string_view name) const;
  uint32_t multiprocessors_per_slice() const;
};

const MigCard* mig_card(std::string_view key);  // null: no such product
const MigCard* mig_card(uint32_t number);       // as mig_card_number() counts them, from 1
uint32_t mig_card_number(const MigCard& card);

// Drivers number GPU instances by size and place: 0 is the whole, 1 and 2 its halves, 3 to 6 the
// quarters and 7 to 13 the eighths ("swizz ids" of open-gpu-kernel-modules). Of the eighths the
// places are those in kubernetes-sigs/dra-driver-nvidia-gpu issue 933; the others see README.
uint32_t gpu_instance_id(const MigCard& card, uint32_t start, uint32_t size);

// A compute instance of so many slices has this profile id, in any GPU instance (nvml.h,
// NVML_COMPUTE_INSTANCE_PROFILE_*).
inline constexpr uint32_t kComputeKinds = 9;
uint32_t compute_slices_of(uint32_t profile_id);  // 0: no such profile
uint32_t compute_profile_id(uint32_t slices);
// Bits: where a compute instance can start in a GPU instance; none if it does not fit there.
uint32_t compute_places(uint32_t gpu_slices, uint32_t slices);

}  // namespace sim
