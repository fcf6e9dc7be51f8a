// Names of AMD's devices in limits, on a machine that has no others: what is not there is refused
// with a line, and each name caps what it means.
#include <unistd.h>

#include <algorithm>

#include "tests/integration/amd_tools.h"

namespace fracgpu::test {
namespace {

class AmdLimit : public AmdTools {
 protected:
  explicit AmdLimit(const std::string& profile = "2xtiny-amd") : AmdTools(profile) {}
  // Bytes that a program is told each of the first devices has.
  std::vector<uint64_t> totals(const std::string& limit, int devices) {
    std::string commands = "init";
    for (int i = 0; i < devices; ++i) commands += " total " + std::to_string(i);
    const Outcome outcome = hip(limit, commands);
    std::vector<uint64_t> all;
    for (int i = 0; i < devices; ++i) {
      const auto bytes = field(line_of(outcome.out, "total", i), "bytes=");
      all.push_back(static_cast<uint64_t>(bytes) / kMiB);
    }
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return all;
  }
};

using MiBs = std::vector<uint64_t>;

TEST_F(AmdLimit, ADeviceThatIsNotThereIsNoReasonToLeaveOthersUncapped) {
  for (const std::string name :
       {"7", "0000:99:00.0", "GPU-0a1b2c3d-0000-1111-2222-333344445555", "AMD-1", "amd-1",
        "GPU-00000000000000aa", "MIG-0a1b2c3d-0000-1111-2222-333344445555"}) {
    const Outcome outcome = hip(name + "=64MiB", "init malloc 1MiB");
    EXPECT_NE(field(line_of(outcome.out, "malloc"), "rc="), 0) << name;
    EXPECT_NE(outcome.err.find("the limit names device " + name + ","), std::string::npos)
        << name << ": " << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1)
        << "one line, however many devices there are: " << outcome.err;
  }
  // A library of NVIDIA's may be in the process, as in programs for both vendors.
  if (access("/dev/nvidiactl", F_OK) != 0 && access("/dev/dxg", F_OK) != 0) {
    const Environment both = {
        {"FRACGPU_NVML", "off"},
        {"LD_PRELOAD", capped("").at("LD_PRELOAD") + ":" TEST_SIM_DIR "/libcuda.so.1"}};
    for (const std::string name :
         {"7", "0000:99:00.0", "GPU-0a1b2c3d-0000-1111-2222-333344445555"}) {
      const Outcome outcome = hip(name + "=64MiB", "init malloc 1MiB", both);
      EXPECT_NE(field(line_of(outcome.out, "malloc"), "rc="), 0) << name;
      EXPECT_NE(outcome.err.find("the limit names device " + name + ","), std::string::npos)
          << name << ": " << outcome.err;
    }
  }
  EXPECT_EQ(node_->tenant_high_water(0, tenant_), 0u);
  // Where all that there is has a cap, the slip is only worth a line, and no more than one.
  const Outcome outcome = hip("256MiB,7=64MiB", "init malloc 1MiB");
  EXPECT_EQ(field(line_of(outcome.out, "malloc"), "rc="), 0) << outcome.err;
  EXPECT_NE(outcome.err.find("the limit names device 7,"), std::string::npos) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
}

TEST_F(AmdLimit, ADeviceIsKnownByItsUuid) {
  std::string shouted = uuid(1);
  for (char& c : shouted) c = static_cast<char>(toupper(c));
  EXPECT_EQ(totals(uuid(1) + "=64MiB", 2), (MiBs{1024, 64}));
  EXPECT_EQ(totals("256MiB," + shouted + "=64MiB", 2), (MiBs{256, 64}));
  const Outcome outcome = run({TEST_FRACGPU, "run", "--gpus", uuid(1), "--memory", "96MiB", "--",
                               TEST_HIP_PROGRAM, "init", "total", "0"},
                              watching());
  EXPECT_EQ(field(line_of(outcome.out, "total"), "bytes="), 96 * kMiB) << outcome.err;
  const Outcome claim = run({TEST_FRACGPU, "run", "--fraction", uuid(1) + "=0.5", "--",
                             TEST_HIP_PROGRAM, "init", "total", "0"},
                            watching());
  EXPECT_EQ(field(line_of(claim.out, "total"), "bytes="), 512 * kMiB) << claim.err;
}

// Kernels before mid-2024, by which partitions are functions of one device and share its UUID.
class AmdOldPartitionLimit : public AmdLimit {
 protected:
  AmdOldPartitionLimit() : AmdLimit("tiny-cpx-fn") {}
};

TEST_F(AmdOldPartitionLimit, AGpusNameMeansAllItsPartitions) {
  for (const std::string& name : {std::string("0000:18:00.0"), uuid(0)}) {
    EXPECT_EQ(totals(name + "=64MiB", 4), (MiBs{64, 64, 64, 64})) << name;
  }
  EXPECT_EQ(totals("0000:18:00.3=64MiB", 4), (MiBs{1024, 1024, 1024, 64}));
  EXPECT_EQ(totals("0000:18:00.0/1=64MiB", 4), (MiBs{1024, 64, 1024, 1024}));
}

}  // namespace
}  // namespace fracgpu::test
