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

// The same with drivers that tell wrong things of processes, on the host and in PID namespaces.
class DriverProperty : public PropertyRig {
 protected:
  DriverProperty() : PropertyRig("a100-40gb", 256, GetParam().driver, TEST_RANDOM_CALLS, 2048) {}
  void SetUp() override {
    if (GetParam().in_pid_namespace && !can_make_pid_namespace()) {
      GTEST_SKIP() << "no PID namespace can be made here";
    }
  }
};

TEST_P(DriverProperty, TheLedgerIsNeverLessThanTheNode) {
  run_phases(2, 2, 600);
}

constexpr bool kOpen = true, kClosed = false;

Mix with(const char* name, NvidiaDriver driver, bool in_pid_namespace = false,
         bool beside = false) {
  Mix mix{name, "linear vmm pools arrays graphs overhead", 64};
  mix.phases = 3;
  mix.driver = driver;
  mix.in_pid_namespace = in_pid_namespace;
  mix.beside = beside;
  return mix;
}

// Where the driver does not tell, a context is charged by what everybody's use of the device grew
// by, if that is not more than 1 GiB. Modules, pools and graphs take what only the driver knows.
Mix untold(const char* name, NvidiaDriver driver, bool in_pid_namespace, bool beside = false) {
  Mix mix = with(name, driver, in_pid_namespace, beside);
  mix.families = "linear vmm arrays";
  mix.untold_mib = 768;
  return mix;
}

INSTANTIATE_TEST_SUITE_P(
    Driver, DriverProperty,
    testing::Values(with("R525", {"525.60.13", kClosed}),
                    untold("R525Inside", {"525.60.13", kClosed}, true),
                    with("R550", {"550.163.01", kOpen}),
                    untold("R550Inside", {"550.163.01", kOpen}, true),
                    untold("R550Beside", {"550.163.01", kOpen}, false, true),
                    with("R550Closed", {"550.163.01", kClosed}, false, true),
                    untold("R550ClosedInside", {"550.163.01", kClosed}, true, true),
                    with("R570Beside", {"570.124.06", kOpen}, false, true),
                    with("R570BesideInside", {"570.124.06", kOpen}, true, true),
                    with("R580Inside", {"580.65.06", kOpen}, true)),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace fracgpu::test
