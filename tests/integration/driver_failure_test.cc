// The driver fails the calls that the library makes for itself: which context is current, whose
// device that is, what a pool holds, who holds what. The cap holds all the same.
#include "tests/integration/amd_rig.h"

namespace fracgpu::test {
namespace {

constexpr char kUnknown[] = "=999";  // CUDA_ERROR_UNKNOWN, NVML_ERROR_UNKNOWN

class DriverFailure : public Rig, public testing::WithParamInterface<const char*> {
 protected:
  DriverFailure() : Rig("a100-40gb", 64) {}
};

TEST_P(DriverFailure, DoesNotOpenTheCap) {
  for (const char* which : {"1", "2", "3", "5", "8", "13", "1+", "2+", "5+", "10+", "30+"}) {
    node_->reset_high_water();
    const Outcome outcome =
        client("512MiB",
               words("init retain alloc 2MiB managed 4MiB pooled 40MiB ctxcreate alloc 8MiB "
                     "pooled 20MiB fill 16MiB freeall pooled 100MiB fill 1MiB freeall"),
               {{"FRACGPU_SIM_FAIL", std::string(GetParam()) + ":" + which + kUnknown}});
    const std::string what = std::string(which) + "\n" + outcome.out + outcome.err;
    EXPECT_EQ(outcome.status, 0) << what;
    EXPECT_LE(node_->tenant_high_water(0, tenant_), 512 * kMiB) << what;
  }
  const Outcome healthy = client("512MiB", words("init retain fill 16MiB"));
  EXPECT_EQ(field(line_of(healthy.out, "fill"), "count="), 28) << "something stayed behind";
}

INSTANTIATE_TEST_SUITE_P(Of, DriverFailure,
                         testing::Values("nvmlInit_v2", "nvmlDeviceGetHandleByUUID",
                                         "nvmlDeviceGetComputeRunningProcesses_v2",
                                         "nvmlDeviceGetMemoryInfo", "cuMemPoolGetAttribute",
                                         "cuMemPoolTrimTo", "cuDeviceGetUuid_v2", "cuDeviceGetUuid",
                                         "cuDeviceTotalMem_v2", "cuStreamIsCapturing",
                                         "cuStreamGetCtx", "cuDeviceGetMemPool",
                                         "cuDeviceGetDefaultMemPool", "cuCtxGetDevice",
                                         "cuCtxGetCurrent"),
                         [](const auto& info) { return std::string(info.param); });

class AmdDriverFailure : public AmdRig, public testing::WithParamInterface<const char*> {};

// HIP makes the same calls before the library does, and does not always survive that they fail.
TEST_P(AmdDriverFailure, DoesNotOpenTheCap) {
  for (int call = 1; call <= 40; ++call) {
    node_->reset_high_water();
    const std::string order = std::string(GetParam()) + ":" + std::to_string(call) + "=4096";
    const Outcome outcome = hip("128MiB", "init malloc 1MiB malloc 5MiB hsa 0 3MiB fill 8MiB",
                                {{"FRACGPU_SIM_FAIL", order}});
    EXPECT_LE(node_->tenant_high_water(0, tenant_), 128 * kMiB) << order << outcome.out;
  }
}

INSTANTIATE_TEST_SUITE_P(Of, AmdDriverFailure,
                         testing::Values("hsa_agent_get_info", "hsa_amd_memory_pool_get_info",
                                         "hsa_region_get_info", "hsa_amd_pointer_info"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace fracgpu::test
