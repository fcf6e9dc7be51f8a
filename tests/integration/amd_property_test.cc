// Random sequences of HIP's and HSA's calls, on AMD's own HIP runtime; see property.h.
#include <dlfcn.h>

#include "tests/integration/property.h"

namespace fracgpu::test {
namespace {

class AmdProperty : public PropertyRig {
 protected:
  explicit AmdProperty(const std::string& profile = "tiny-amd")
      : PropertyRig(profile, 1, TEST_RANDOM_HIP, 512) {}

  void SetUp() override {
    if (sanitized()) GTEST_SKIP() << "AMD's runtime is not instrumented";
    if (dlopen("libamdhip64.so.5", RTLD_LAZY) == nullptr) GTEST_SKIP() << "no libamdhip64.so.5";
  }
};

TEST_P(AmdProperty, LedgerEqualsTheNodeWheneverAllStandStill) {
  run_phases(2, 2, 2500);
}

TEST_P(AmdProperty, NothingIsRefusedThatFits) {
  run_phases(1, 1, 2500, {{"RANDOM_CALLS_ALONE", "1"}});
}

// Shorter, on a machine whose KFD differs: an APU, and a kernel that unlists processes first.
class AmdPropertyOnOtherKernels : public AmdProperty {
 protected:
  AmdPropertyOnOtherKernels() : AmdProperty("tiny-apu@unlists-first") {}
};

TEST_P(AmdPropertyOnOtherKernels, LedgerEqualsTheNodeWheneverAllStandStill) {
  run_phases(2, 2, 600);
}

INSTANTIATE_TEST_SUITE_P(Family, AmdPropertyOnOtherKernels,
                         testing::Values(Mix{"Hsa", "hsa linear", 64},
                                         Mix{"Sharing", "sharing linear", 16}),
                         [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(Family, AmdProperty,
                         testing::Values(Mix{"Linear", "linear", 64}, Mix{"Pools", "pools", 32},
                                         Mix{"Arrays", "arrays", 1},
                                         Mix{"Streams", "streams linear", 8}, Mix{"Hsa", "hsa", 64},
                                         Mix{"Vmem", "vmem", 64},
                                         Mix{"Sharing", "sharing linear", 16},
                                         Mix{"SharingAbroad", "sharing linear", 16, "4", "", true},
                                         // Without streams that come and go: destroying one spins
                                         // for ever in HIP 5.2 while its pools are in use.
                                         Mix{"All", "linear pools arrays hsa vmem", 16}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace fracgpu::test
