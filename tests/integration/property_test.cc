// Random sequences of CUDA's calls; see property.h.
#include "tests/integration/property.h"

namespace fracgpu::test {
namespace {

class CudaProperty : public PropertyRig {
 protected:
  CudaProperty() : PropertyRig("a100-40gb", 256, TEST_RANDOM_CALLS, 2048) {}
};

TEST_P(CudaProperty, LedgerEqualsTheNodeWheneverAllStandStill) {
  run_phases(2, 2, 2500);
}

TEST_P(CudaProperty, NothingIsRefusedThatFits) {
  run_phases(1, 1, 2500, {{"RANDOM_CALLS_ALONE", "1"}});
}

INSTANTIATE_TEST_SUITE_P(
    Family, CudaProperty,
    testing::Values(Mix{"Linear", "linear", 256}, Mix{"Vmm", "vmm", 256},
                    Mix{"Pools", "pools", 128}, Mix{"Arrays", "arrays", 1},
                    Mix{"Graphs", "graphs linear", 256}, Mix{"Overhead", "overhead", 64},
                    Mix{"Managed", "managed linear overhead", 64},
                    Mix{"ManagedLate", "managed linear overhead", 64, "4", "late"},
                    Mix{"Sharing", "sharing linear", 64},
                    Mix{"SharingAbroad", "sharing linear", 64, "4", "", true},
                    Mix{"All", "linear vmm pools arrays graphs overhead", 64}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace fracgpu::test
