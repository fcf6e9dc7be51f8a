// The driver gives a handle out again before the call that ended what it stood for has returned:
// what another thread makes meanwhile is charged as its own, and stays charged.
#include "tests/integration/rig.h"

namespace fracgpu::test {
namespace {

// The client's words, the call that ends something, and what the second thread is left with.
struct Scene {
  const char* what;
  const char* end;
  uint64_t contexts;  // bytes of overhead
  uint64_t memory;    // and of what was asked for
  void PrintTo(std::ostream* out) const { *out << what; }
};

class ReuseTest : public Rig, public testing::WithParamInterface<Scene> {
 protected:
  void run_scene(const Environment& extra) {
    const Scene& scene = GetParam();
    const std::string end = std::string("end of ") + scene.end;
    Environment meeting = {
        {"FRACGPU_SIM_AWAIT", "cuCtxGetFlags=" + end + "," + end + "=cuCtxGetId"}};
    // The primary context keeps its handle, and the second thread may be kept waiting for the first
    // one's call, whose delay has it come in between otherwise.
    if (end.find("Primary") != std::string::npos) {
      // The library has released it once before, to know its handle.
      const char* const which = end.find("Release") != std::string::npos ? ":2" : "";
      meeting = {{"FRACGPU_SIM_AWAIT", "cuCtxGetFlags=" + end + which},
                 {"FRACGPU_SIM_DELAY_US", end + "=300000"}};
    }
    Program program({TEST_MEETING_CLIENT, scene.what}, capped("2GiB") + meeting + extra);
    const auto lines = program.read_until_ready();
    EXPECT_TRUE(lines.empty()) << lines.back();
    expect_books_agree(program.pid(), "made meanwhile");
    EXPECT_EQ(node_->used_by_pid(0, program.pid()), scene.contexts + scene.memory);
    EXPECT_EQ(ledger().overhead(key(), program.pid()), scene.contexts);
    program.go_on();
    program.read_until_ready();
    expect_books_agree(program.pid(), "ended too");
    program.go_on();
    EXPECT_EQ(program.finish().err, "");
  }
};

TEST_P(ReuseTest, WhatIsMadeMeanwhileStaysCharged) {
  run_scene({});
}

// Where the driver does not tell what the process holds, nothing mends the books.
TEST_P(ReuseTest, WhatIsMadeMeanwhileStaysChargedWithoutTheListOfProcesses) {
  run_scene({{"FRACGPU_SIM_FAIL", "nvmlDeviceGetComputeRunningProcesses_v2:1+=9"}});
}

constexpr uint64_t kContext = 256 * kMiB;
INSTANTIATE_TEST_SUITE_P(
    Of, ReuseTest,
    testing::Values(Scene{"destroyed", "cuCtxDestroy_v2", kContext, 100 * kMiB},
                    Scene{"detached", "cuCtxDetach", kContext, 100 * kMiB},
                    Scene{"released", "cuDevicePrimaryCtxRelease_v2", kContext, 100 * kMiB},
                    Scene{"reset", "cuDevicePrimaryCtxReset_v2", kContext, 100 * kMiB},
                    Scene{"streams", "cuCtxDestroy_v2", kContext + 2 * kMiB, 0},
                    Scene{"module", "cuModuleUnload", kContext + 100 * kMiB, 0},
                    Scene{"physical", "cuMemRelease", kContext, 2 * kMiB},
                    Scene{"array", "cuArrayDestroy", kContext, 2 * kMiB}),
    [](const auto& info) { return std::string(info.param.what); });

}  // namespace
}  // namespace fracgpu::test
