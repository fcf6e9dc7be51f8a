// The cap on HIP's later releases, each AMD's own build: 5.7.1, 6.4.3 and 7.2.4.
#include <algorithm>

#include "tests/integration/amd_rig.h"
#include "tests/integration/system_calls.h"

namespace fracgpu::test {
namespace {

class HipRelease : public AmdRig, public testing::WithParamInterface<const char*> {
 protected:
  explicit HipRelease(const std::string& profile = "tiny-amd") : AmdRig(profile) {}

  void SetUp() override {
    if (sanitized()) GTEST_SKIP() << "AMD's runtime is not instrumented";
    std::string why;
    if (!use_release(GetParam(), &why)) GTEST_SKIP() << why;
  }
  bool at_least(const std::string& release) const { return GetParam() >= release; }
};

class HipReleaseOnPartitions : public HipRelease {
 protected:
  HipReleaseOnPartitions() : HipRelease("mi300x-cpx-nps4") {}
};

class HipReleaseOnSixtyFour : public HipRelease {
 protected:
  HipReleaseOnSixtyFour() : HipRelease("8xmi300x-cpx-nps1") {}
};

// Each command allocates 24 MiB in another way, under a cap that has room for one of them.
TEST_P(HipRelease, EveryWayToAllocateIsCapped) {
  std::vector<std::string> ways = {"malloc 24MiB", "flags 24MiB", "managed 24MiB", "async 24MiB",
                                   "hsa 0 24MiB"};
  if (at_least("6.4")) ways.push_back("vmm 24MiB");
  for (const std::string& way : ways) {
    auto program = start("44MiB", "init " + way + " " + way + " meminfo wait freeall wait");
    const auto lines = program->read_until_ready();
    ASSERT_EQ(lines.size(), 4u) << way << ": " << program->finish().err;
    EXPECT_EQ(field(lines[1], "rc="), 0) << way;
    EXPECT_NE(field(lines[2], "rc="), 0) << way;
    EXPECT_EQ(field(lines[3], "total="), 44 * kMiB) << way;
    const uint64_t real = node_->used_by_pid(0, program->pid());
    const bool managed = way.find("managed") == 0;
    EXPECT_EQ(ledger().held(key(), program->pid()), real + (managed ? 24 * kMiB : 0)) << way;
    EXPECT_LT(real, 44 * kMiB) << way;
    program->go_on();
    program->read_until_ready();
    EXPECT_EQ(ledger().held(key(), program->pid()), node_->used_by_pid(0, program->pid())) << way;
    const Outcome outcome = program->finish();
    EXPECT_NE(outcome.err.find(" refused on " + key()), std::string::npos) << way << outcome.err;
  }
  EXPECT_LE(node_->tenant_high_water(0, tenant_), 44 * kMiB);
}

TEST_P(HipRelease, TheCappedDeviceIsShownEverywhere) {
  const bool six = at_least("6");
  const Outcome outcome =
      hip("50%", std::string("init malloc 64MiB meminfo total 0 props 0 ") +
                     (six ? "props6 0 propsold 0 " : "") + "hsainfo 0 ptrinfo 0");
  EXPECT_EQ(field(line_of(outcome.out, "meminfo"), "total="), 512 * kMiB) << outcome.out;
  EXPECT_EQ(field(line_of(outcome.out, "total"), "bytes="), 512 * kMiB) << outcome.out;
  for (int i = 0; i <= (six ? 2 : 0); ++i) {
    EXPECT_EQ(field(line_of(outcome.out, "props", i), "bytes="), 512 * kMiB) << outcome.out;
  }
  EXPECT_EQ(field(line_of(outcome.out, "hsainfo"), "size="), 512 * kMiB) << outcome.out;
  EXPECT_EQ(field(line_of(outcome.out, "ptrinfo"), "bytes="), 64 * kMiB) << outcome.out;
}

// HIP gives no request more than three quarters of so small a device. What it was not given is not
// said to be in use.
TEST_P(HipRelease, ARefusalByItsOwnCountTellsWhatIsInUse) {
  const Outcome outcome = hip("256MiB", "init malloc 250MiB");
  ASSERT_NE(field(line_of(outcome.out, "malloc"), "rc="), 0) << outcome.out;
  EXPECT_NE(outcome.err.find("out of memory by its own count, in use "), std::string::npos)
      << outcome.err;
  EXPECT_EQ(outcome.err.find("in use 25"), std::string::npos) << outcome.err;
}

// HIP asks HSA what is available, which is hooked, too.
// Beyond those by which the runtime asks its kernel driver.
TEST_P(HipRelease, AskingForTheFreeMemoryMakesNoSystemCalls) {
  const std::string asks[] = {"meminfos ", "available "};
  int added[2][2] = {};
  for (const bool capped : {false, true}) {
    const Environment without = {{"LD_PRELOAD", TEST_SIM_DIR "/libsimkfd.so"}};
    auto program = start("256MiB", "init malloc 1MiB meminfos 10 available 10 wait",
                         capped ? Environment() : without);
    program->read_until_ready();
    for (int i = 0; i < 2; ++i) {
      const int few = system_calls_of(*program, asks[i] + "1 wait");
      added[i][capped] = system_calls_of(*program, asks[i] + "1001 wait") - few;
      EXPECT_EQ(field(program->read_until_ready()[0], "rc="), 0);
    }
    program->finish();
  }
  for (int i = 0; i < 2; ++i) EXPECT_EQ(added[i][true], added[i][false]) << asks[i];
}

// The dead among them are looked for now and then, and not at each call.
TEST_P(HipRelease, AskingBesideAnotherMakesFewSystemCalls) {
  auto other = start("256MiB", "init malloc 100MiB wait");
  other->read_until_ready();
  constexpr int kCalls = 5'000;
  int counts[2] = {};
  const Environment without = {{"LD_PRELOAD", TEST_SIM_DIR "/libsimkfd.so"}};
  for (const bool capped : {false, true}) {
    auto program =
        start("256MiB", "init malloc 1MiB meminfos 10 wait", capped ? Environment() : without);
    program->read_until_ready();
    counts[capped] = system_calls_of(*program, "meminfos " + std::to_string(kCalls) + " wait");
    const std::string said = program->read_until_ready()[0];
    EXPECT_EQ(static_cast<uint64_t>(field(said, "free=")) <= 155 * kMiB, capped) << said;
    program->finish();
  }
  EXPECT_LT(counts[true] - counts[false], kCalls / 10);
  other->finish();
}

TEST_P(HipRelease, EveryLookupIsHooked) {
  std::vector<std::string> lookups = {"dlsym", "default"};
  if (at_least("6.4")) lookups.push_back("proc");
  for (const std::string& lookup : lookups) {
    auto program =
        start("32MiB", "--lookup=" + lookup + " init malloc 24MiB malloc 24MiB meminfo wait");
    const auto lines = program->read_until_ready();
    ASSERT_EQ(lines.size(), 4u) << lookup << program->finish().err;
    EXPECT_EQ(field(lines[1], "rc="), 0) << lookup;
    EXPECT_EQ(field(lines[2], "rc="), 2) << lookup;
    EXPECT_EQ(field(lines[3], "total="), 32 * kMiB) << lookup;
    program->finish();
  }
}

TEST_P(HipReleaseOnPartitions, EachIsADeviceOfItsOwn) {
  const std::string limit = "1GiB," + key(5) + "=50%,0000:18:00.0/2=3GiB";
  for (const char* variable : {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}) {
    auto program = start(limit, "init count total 0 malloc 8GiB meminfo total 1 total 2 wait",
                         {{variable, "5,2,7"}});
    const auto lines = program->read_until_ready();
    ASSERT_EQ(lines.size(), 7u) << variable << program->finish().err;
    EXPECT_EQ(field(lines[1], "devices="), 3) << variable;
    const uint64_t half = node_->total(5) / 2 / 512 * 512;
    EXPECT_EQ(field(lines[2], "bytes="), half) << variable << ": of the partition's own memory";
    EXPECT_EQ(field(lines[3], "rc="), 0) << variable;
    EXPECT_EQ(field(lines[4], "total="), half) << variable;
    EXPECT_EQ(field(lines[5], "bytes="), 3 * kGiB) << variable;
    EXPECT_EQ(field(lines[6], "bytes="), kGiB) << variable;
    expect_books_agree(program->pid(), variable, 5);
    program->finish();
  }
}

TEST_P(HipReleaseOnSixtyFour, EachIsCapped) {
  std::string commands = "init count";
  for (int i = 0; i < 64; ++i) {
    commands += " device " + std::to_string(i) + " malloc 160MiB malloc 160MiB";
  }
  auto program = start("256MiB", commands + " wait");
  const auto lines = program->read_until_ready();
  ASSERT_EQ(lines.size(), 2u + 64 * 3) << program->finish().err;
  ASSERT_EQ(field(lines[1], "devices="), 64) << lines[1];
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(field(lines[2 + 3 * i + 1], "rc="), 0) << i;
    EXPECT_NE(field(lines[2 + 3 * i + 2], "rc="), 0) << i << ": the cap is 256 MiB";
    expect_books_agree(program->pid(), "one of 64", i);
    EXPECT_LE(node_->tenant_high_water(i, tenant_), 256 * kMiB) << i;
  }
  program->finish();
}

const auto kReleases = testing::Values("5.7.1", "6.4.3", "7.2.4");
const auto name_of = [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '.', '_');
  return "Hip" + name;
};
INSTANTIATE_TEST_SUITE_P(Amds, HipRelease, kReleases, name_of);
INSTANTIATE_TEST_SUITE_P(Amds, HipReleaseOnPartitions, kReleases, name_of);
INSTANTIATE_TEST_SUITE_P(Amds, HipReleaseOnSixtyFour, kReleases, name_of);

}  // namespace
}  // namespace fracgpu::test
