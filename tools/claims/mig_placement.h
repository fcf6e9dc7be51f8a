// Chooses the place of an instance on a GPU in MIG mode. This is pure arithmetic: the GPU's
// profiles and instances come from its driver, and promised instances from the claim table.
//
// A GPU's memory is cut into slices (8, or 4 on A30). Each profile takes some of them, at certain
// starts only: "Supported MIG Profiles" and "Placement" in NVIDIA's MIG user guide. So an instance
// in the wrong place can block a larger one although enough memory is free.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fracgpu::tools {

using SliceMask = uint32_t;  // a bit for each memory slice of a GPU

struct MigProfile {
  std::string name;               // "2g.20gb", as nvidia-smi prints it
  uint32_t id = 0;                // identifies the profile in NVML
  uint32_t compute = 0;           // slices
  uint32_t slices = 0;            // of memory
  uint64_t memory = 0;            // bytes
  std::vector<uint8_t> starts{};  // empty if the GPU has its maximum number
  uint32_t most = 0;              // the maximum on a GPU; may be less than its places

  // False for profiles with media engines or graphics. A GPU has few of those, so they are made
  // only if the request names them.
  bool is_plain() const { return name.find('+') == name.npos; }
  SliceMask mask(uint8_t start) const { return ((SliceMask{1} << slices) - 1) << start; }
};

struct MigGpu {
  std::string key;  // of the whole GPU, as in the ledger
  uint32_t slices = 0;
  std::vector<MigProfile> profiles{};
  SliceMask occupied = 0;  // by existing instances of any creator
};

// The instance that a launch requests.
struct MigWish {
  enum class Kind : uint8_t { none, memory, share, profile } kind = Kind::none;
  uint64_t amount = 0;    // memory: bytes at least; share: eighths of the GPU at least
  std::string profile{};  // its name
};

struct MigPlace {
  size_t gpu = 0;      // place in the list of GPUs
  size_t profile = 0;  // in the GPU's list
  uint8_t start = 0;
};

// The smallest profile of the GPU that serves the wish. Among profiles of the same size, the one
// with the fewest compute slices. For a share, the profile has at least that share of the compute
// slices. None if no profile serves it.
std::optional<size_t> profile_for(const MigGpu& gpu, const MigWish& wish);

// The place that leaves others the largest possible instances. It is the place, among all GPUs,
// that loses the fewest instances of the largest profile, then of the next one. Among equal places,
// the fullest GPU wins. None if no place is free.
std::optional<MigPlace> place_instance(const std::vector<MigGpu>& gpus, const MigWish& wish);

// The place that a waiting request should get as soon as it drains: the one with the fewest
// occupied slices. `fixed`, a mask for each GPU, does not drain. None if the request never fits.
std::optional<MigPlace> earmark_instance(const std::vector<MigGpu>& gpus,
                                         const std::vector<SliceMask>& fixed, const MigWish& wish);

}  // namespace fracgpu::tools
