// What NVML and nvidia-smi show inside a tenant: the capped device, before, during and after use.
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "tests/integration/rig.h"

namespace fracgpu::test {
namespace {

constexpr char kMemoryInfo[] = R"(
import ctypes
nvml = ctypes.CDLL("libnvidia-ml.so.1")
assert nvml.nvmlInit_v2() == 0
device = ctypes.c_void_p()
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
v1 = (ctypes.c_uint64 * 3)()
assert nvml.nvmlDeviceGetMemoryInfo(device, v1) == 0
print("v1 total=%d free=%d used=%d" % tuple(v1))
v2 = (ctypes.c_uint64 * 5)(0x2000028)
assert nvml.nvmlDeviceGetMemoryInfo_v2(device, v2) == 0
print("v2 total=%d reserved=%d free=%d used=%d" % tuple(v2[1:]))
bad = (ctypes.c_uint64 * 5)(0x1000028)
print("bad rc=%d null rc=%d" % (nvml.nvmlDeviceGetMemoryInfo_v2(device, bad),
                                nvml.nvmlDeviceGetMemoryInfo(device, None)))
)";

class Nvml : public Rig {
 protected:
  std::string shown(const std::string& limit) {
    return run({"python3", "-c", kMemoryInfo}, capped(limit)).out;
  }
};

TEST_F(Nvml, ShowsTheTenantsViewInBothVersions) {
  auto program = start_client("8GiB", words("init retain alloc 3GiB wait"));
  program->read_until_ready();
  const std::string text = shown("8GiB");
  for (const char* version : {"v1", "v2"}) {
    const std::string line = line_of(text, version);
    EXPECT_EQ(field(line, "total="), 8 * kGiB) << text;
    EXPECT_EQ(field(line, "used="), 3 * kGiB + 256 * kMiB);
    EXPECT_EQ(field(line, "free="), 5 * kGiB - 256 * kMiB);
  }
  EXPECT_EQ(field(line_of(text, "v2"), "reserved="), 0);
}

TEST_F(Nvml, BeforeAnyGpuProcessTheTotalIsAlreadyTheCap) {
  const std::string line = line_of(shown("8GiB"), "v1");
  EXPECT_EQ(field(line, "total="), 8 * kGiB);
  EXPECT_EQ(field(line, "used="), 0);
  EXPECT_NE(access(ledger_path().c_str(), F_OK), 0) << "a tool must leave nothing behind";
}

TEST_F(Nvml, InTheTenantOfADeadProcess) {
  auto program = start_client("8GiB", words("init retain alloc 3GiB wait"));
  program->read_until_ready();
  program->kill(SIGKILL);
  program->finish();
  const std::string line = line_of(shown("4GiB"), "v1");
  EXPECT_EQ(field(line, "total="), 4 * kGiB) << "the dead tenant's cap no longer counts";
  EXPECT_EQ(field(line, "used="), 0);
}

TEST_F(Nvml, ErrorsAreTheLibrarysOwn) {
  if (thread_sanitized()) GTEST_SKIP() << "python is not instrumented";
  const std::string with = line_of(shown("8GiB"), "bad");
  const std::string without = line_of(run({"python3", "-c", kMemoryInfo}, bare()).out, "bad");
  EXPECT_FALSE(without.empty());
  EXPECT_EQ(with, without);
}

TEST_F(Nvml, PerDeviceLimitsByIndex) {
  const std::string line = line_of(shown("0=2GiB"), "v1");
  EXPECT_EQ(field(line, "total="), 2 * kGiB);
}

// The real program, fetched from Debian; nothing of it is kept in the tree.
class NvidiaSmi : public Nvml, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    if (thread_sanitized()) GTEST_SKIP() << "nvidia-smi is not instrumented";
    const std::string where = std::string(TEST_PARTS) + "/nvidia-smi-" + GetParam();
    const Outcome fetched = run({TEST_FETCH, std::string("nvidia-smi-") + GetParam(), where},
                                {{"PATH", getenv("PATH")}});
    if (fetched.status != 0) GTEST_SKIP() << "nvidia-smi cannot be had: " << fetched.err;
    program_ = where + "/run";
  }
  std::string query(const Environment& environment) {
    return run({program_, "--query-gpu=memory.total,memory.used,memory.free",
                "--format=csv,noheader"},
               environment)
        .out;
  }
  std::string program_;
};

TEST_P(NvidiaSmi, ShowsTheCap) {
  auto program = start_client("8GiB", words("init retain alloc 3GiB wait"));
  program->read_until_ready();
  EXPECT_EQ(query(capped("8GiB")), "8192 MiB, 3328 MiB, 4864 MiB\n");
  EXPECT_EQ(query(bare()), "40960 MiB, 3328 MiB, 37632 MiB\n") << "and the node without the cap";
  const Outcome view = run({program_}, capped("8GiB"));
  EXPECT_EQ(view.status, 0);
  // The versions pad the columns differently.
  std::string table = view.out;
  table.erase(std::remove(table.begin(), table.end(), ' '), table.end());
  EXPECT_NE(table.find("|3328MiB/8192MiB|"), std::string::npos) << view.out;
  const Outcome memory = run({program_, "-q", "-d", "MEMORY"}, capped("8GiB"));
  EXPECT_NE(memory.out.find("Total                             : 8192 MiB"), std::string::npos)
      << memory.out;
  EXPECT_EQ(run({program_, "-L"}, capped("8GiB")).out, run({program_, "-L"}, bare()).out)
      << "names and UUIDs are never altered";
}

INSTANTIATE_TEST_SUITE_P(Versions, NvidiaSmi, testing::Values("535", "550"));

}  // namespace
}  // namespace fracgpu::test
