// Where on a GPU in MIG mode an instance goes. Pure arithmetic: what the GPU offers and has comes
// from its driver, what was promised from the claim table.
//
// A GPU's memory is cut into slices (8, of A30 4), and each profile of instances takes some of them
// at certain starts only: "Supported MIG Profiles" and "Placement" in NVIDIA's MIG user guide. So
// an instance in the wrong place keeps a larger one out although memory enough is free.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fracgpu::tools {

using SliceMask = uint32_t;  // a bit for each memory slice of a GPU

struct MigProfile {
  std::string name;               // "2g.20gb", as nvidia-smi has it
  uint32_t id = 0;                // by which NVML makes one
  uint32_t compute = 0;           // slices
  uint32_t slices = 0;            // of memory
  uint64_t memory = 0;            // bytes
  std::vector<uint8_t> starts{};  // none where the GPU has as many as it can have
  uint32_t most = 0;              // that a GPU can have, which may be fewer than its places

  // One with media engines or graphics, of which a GPU has few, is made only where it is named.
  bool is_plain() const { return name.find('+') == name.npos; }
  SliceMask mask(uint8_t start) const { return ((SliceMask{1} << slices) - 1) << start; }
};

struct MigGpu {
  std::string key;  // of the whole GPU, as in the ledger
  uint32_t slices = 0;
  std::vector<MigProfile> profiles{};
  SliceMask occupied = 0;  // by instances that there are, whoever made them
};

// What a launch wants.
struct MigWish {
  enum class Kind : uint8_t { none, memory, share, profile } kind = Kind::none;
  uint64_t amount = 0;    // memory: bytes at least; share: eighths of the GPU at least
  std::string profile{};  // its name
};

struct MigPlace {
  size_t gpu = 0;      // place in the list of GPUs
  size_t profile = 0;  // of the GPU's
  uint8_t start = 0;
};

// The smallest profile of the GPU that serves the wish; of the same size that with the fewest
// compute slices, of shares at least as many as the share of them. None where no profile does.
std::optional<size_t> profile_for(const MigGpu& gpu, const MigWish& wish);

// The place that leaves the largest instances possible for others: of all places on all GPUs that
// where the fewest of the largest profile are lost, then of the next. Of equals, on the fullest
// GPU. None where nothing is free.
std::optional<MigPlace> place_instance(const std::vector<MigGpu>& gpus, const MigWish& wish);

// The place that who must wait should have as soon as it drains: where the fewest slices are
// occupied. `fixed`, a mask for each GPU, does not drain. None where it never fits.
std::optional<MigPlace> earmark_instance(const std::vector<MigGpu>& gpus,
                                         const std::vector<SliceMask>& fixed, const MigWish& wish);

}  // namespace fracgpu::tools
