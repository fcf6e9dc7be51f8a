// See slices.h.
#include "tools/advise/slices.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <span>

#include "fracgpu/claim_table_layout.h"
#include "tools/machine/amd_partitions.h"

namespace fracgpu::tools {
namespace {

constexpr uint64_t kMiB = 1u << 20, kGiB = 1u << 30;

struct Profile {
  const char* name;
  uint64_t mib;
};
struct Product {
  const char* model;  // words of the model, as NVML names the GPU
  std::span<const Profile> profiles;
};

// The plain profiles of "Supported MIG Profiles" in NVIDIA's MIG user guide, with the memory that
// `nvidia-smi mig -lgip` prints for them in public reports. A GPU reports its own profiles only in
// MIG mode.
constexpr Profile kA30[] = {{"1g.6gb", 5836}, {"2g.12gb", 11672}, {"4g.24gb", 23344}};
constexpr Profile kA100_40[] = {
    {"1g.5gb", 4864}, {"2g.10gb", 9856}, {"3g.20gb", 19968}, {"7g.40gb", 40192}};
constexpr Profile kA100_80[] = {
    {"1g.10gb", 9856}, {"2g.20gb", 19968}, {"3g.40gb", 40192}, {"7g.80gb", 80384}};
constexpr Profile kH100_80[] = {
    {"1g.10gb", 9984}, {"2g.20gb", 20096}, {"3g.40gb", 40448}, {"7g.80gb", 81152}};
constexpr Profile kH200[] = {
    {"1g.18gb", 16384}, {"2g.35gb", 33024}, {"3g.71gb", 71168}, {"7g.141gb", 142976}};
constexpr Profile kB200[] = {
    {"1g.23gb", 20992}, {"2g.45gb", 45312}, {"3g.90gb", 90624}, {"7g.180gb", 182272}};
constexpr Profile kGb200[] = {
    {"1g.24gb", 20480}, {"2g.47gb", 46592}, {"3g.95gb", 93184}, {"7g.189gb", 188416}};
constexpr Product kProducts[] = {
    {"GB200", kGb200}, {"B200", kB200}, {"H200", kH200}, {"A30", kA30}, {"H100", kH100_80},
};

bool has_word(const std::string& text, const std::string& word) {
  const size_t at = text.find(word);
  if (at == text.npos) return false;
  const auto is_part = [&](size_t place) {
    return place < text.size() && std::isalnum(static_cast<unsigned char>(text[place])) != 0;
  };
  return (at == 0 || !is_part(at - 1)) && !is_part(at + word.size());
}

std::span<const Profile> profiles_of(const Gpu& gpu) {
  if (has_word(gpu.model, "A100")) {
    return gpu.physical > 60 * kGiB ? std::span<const Profile>(kA100_80) : kA100_40;
  }
  // There are no published sizes for H100s with 94 or 96 GiB.
  for (const Product& product : kProducts) {
    const bool other_h100 = product.profiles.data() == kH100_80 && gpu.physical > 84 * kGiB;
    if (has_word(gpu.model, product.model) && !other_h100) return product.profiles;
  }
  return {};
}

void choose_partition(uint64_t bytes, const Gpu& gpu, const std::vector<Gpu>& all, Slices& slices) {
  for (const Board& board : amd_boards(all)) {
    if (board.number != gpu.board) continue;
    for (const std::string& mode : board.modes.all_compute) {
      const uint32_t parts = board.partitions_in(mode);
      if (parts < 2 || board.bytes() / parts < bytes) continue;
      if (slices.partition_bytes != 0 && board.bytes() / parts >= slices.partition_bytes) continue;
      slices.partition = mode;
      slices.has_partition_mode = board.modes.compute == mode;
      slices.partition_bytes = board.bytes() / parts;
    }
  }
  std::transform(slices.partition.begin(), slices.partition.end(), slices.partition.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
}

}  // namespace

Slices slices_for(uint64_t bytes, const Gpu& gpu, const std::vector<Gpu>& all) {
  constexpr int kEighths = claim_table_layout::kEighths;
  // The sizes in containers/docker-bake.hcl.
  constexpr int kImages_gb[] = {2, 4, 8, 12, 24, 48};
  Slices slices;
  for (int eighths = kEighths; eighths > 0; --eighths) {
    if (gpu.physical / kEighths * static_cast<uint64_t>(eighths) >= bytes) slices.eighths = eighths;
  }
  for (const Profile& profile : profiles_of(gpu)) {
    if (slices.mig_bytes == 0 && profile.mib * kMiB >= bytes) {
      slices.mig_profile = profile.name;
      slices.mig_bytes = profile.mib * kMiB;
    }
  }
  slices.has_mig_mode =
      std::any_of(all.begin(), all.end(), [](const Gpu& each) { return each.divided; });
  if (gpu.vendor == Gpu::Vendor::amd) choose_partition(bytes, gpu, all, slices);
  const auto* const image = std::find_if(std::begin(kImages_gb), std::end(kImages_gb), [&](int gb) {
    return static_cast<uint64_t>(gb) * kGiB >= bytes;
  });
  if (image != std::end(kImages_gb)) slices.image_gb = *image;
  return slices;
}

}  // namespace fracgpu::tools
