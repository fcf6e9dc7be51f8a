// MIG: every instance is a device of its own, with its own cap, in CUDA and in NVML.
#include "tests/integration/nvml_rig.h"

namespace fracgpu::test {
namespace {

// Rows of the node: GPU 0 in MIG mode, its four instances, and GPU 1 without MIG.
constexpr int kGpu = 0, kFirst = 1, kSecond = 2, kThird = 3, kFourth = 4, kWhole = 5;

class NvmlMigTest : public NvmlRig {
 protected:
  NvmlMigTest() : NvmlRig("h100-80gb-mig+a100-40gb", 256) {}

  std::unique_ptr<Program> start_on(int instance, const std::string& limit,
                                    const std::string& commands) const {
    auto program = start_client(limit, words(commands), on(instance));
    return program;
  }
  Environment on(int instance) const { return {{"CUDA_VISIBLE_DEVICES", uuid(instance)}}; }
  std::string total_of(int instance, const std::string& limit) const {
    const Outcome outcome = client(limit, words("init total"), on(instance));
    const std::string line = line_of(outcome.out, "total");
    return line.empty() ? outcome.err : std::to_string(field(line, "bytes="));
  }
  static std::string mib(uint64_t number) { return std::to_string(number * kMiB); }
};

TEST_F(NvmlMigTest, EveryInstanceHasItsOwnCapAndRow) {
  ASSERT_EQ(uuid(kThird).substr(0, 4), "MIG-");
  const std::string limit = "8GiB," + uuid(kThird) + "=4GiB";
  auto first = start_on(kFirst, limit, "init retain alloc 7GiB alloc 1GiB meminfo total wait");
  auto third = start_on(kThird, limit, "init retain alloc 3GiB alloc 1GiB meminfo total wait");
  const std::vector<std::string> one = first->read_until_ready(), other = third->read_until_ready();
  EXPECT_EQ(field(one[2], "rc="), 0);
  EXPECT_EQ(field(one[3], "rc="), 2) << "over the cap of the first";
  EXPECT_EQ(field(one[4], "total="), 8 * kGiB);
  EXPECT_EQ(field(other[2], "rc="), 0);
  EXPECT_EQ(field(other[3], "rc="), 2);
  EXPECT_EQ(field(other[4], "total="), 4 * kGiB);
  EXPECT_EQ(field(other[5], "bytes="), 4 * kGiB);
  expect_books_agree(first->pid(), "on the first", kFirst);
  expect_books_agree(third->pid(), "on the third", kThird);
  EXPECT_EQ(ledger().cap(uuid(kThird)), 4 * kGiB);
  EXPECT_EQ(ledger().total_held(uuid(kGpu)), 0) << "nothing can be allocated on the GPU itself";

  const std::string commands =
      "instance 0 v1 attributes GetAttributes_v2 list ComputeRunningProcesses_v3 "
      "list ComputeRunningProcesses";
  const std::string text = ask(commands, capped(limit)).out;
  EXPECT_EQ(field(line_of(text, "v1"), "total="), 8 * kGiB) << text;
  EXPECT_EQ(field(line_of(text, "v1"), "used="), 7 * kGiB + 256 * kMiB);
  EXPECT_EQ(field(line_of(text, "GetAttributes_v2"), "memory="), 8192);
  const Holdings on_first = held_by({first->pid()}, kFirst);
  EXPECT_EQ(listed(text, "ComputeRunningProcesses_v3"), on_first);
  EXPECT_EQ(listed(text, "ComputeRunningProcesses"), on_first);
  EXPECT_NE(text.find("gi=2 ci=0"), text.npos) << "instances stay named";

  const std::string real = ask("instance 0 v1 attributes GetAttributes", bare()).out;
  EXPECT_EQ(field(line_of(real, "v1"), "total="), 40448 * kMiB);
  EXPECT_EQ(field(line_of(real, "GetAttributes"), "memory="), 40448);
}

TEST_F(NvmlMigTest, TheGpuShowsWhatItsInstancesHaveTogether) {
  const std::string limit = "8GiB," + uuid(kThird) + "=4GiB";
  auto first = start_on(kFirst, limit, "init retain alloc 2GiB wait");
  auto third = start_on(kThird, limit, "init retain alloc 1GiB wait");
  auto stranger =
      start_client(limit, words("init retain alloc 1GiB wait"), on(kFourth) + other_tenant());
  for (Program* program : {first.get(), third.get(), stranger.get()}) program->read_until_ready();
  const std::string text =
      ask("v1 v2 list ComputeRunningProcesses_v3 details 0", capped(limit)).out;
  Holdings all = held_by({first->pid()}, kFirst);
  all.merge(held_by({third->pid()}, kThird));
  EXPECT_EQ(field(line_of(text, "v1"), "total="), (8 + 8 + 4 + 8) * kGiB) << text;
  EXPECT_EQ(field(line_of(text, "v1"), "used="), 3 * kGiB + 512 * kMiB);
  EXPECT_EQ(field(line_of(text, "v2"), "used="), 3 * kGiB + 512 * kMiB);
  EXPECT_EQ(listed(text, "ComputeRunningProcesses_v3"), all);
  EXPECT_EQ(listed(text, "details"), all);
  // Where one instance alone is capped, the others are shown as they are.
  const std::string one = uuid(kThird) + "=4GiB";
  const Environment nobody = capped(one) + Environment{{"FRACGPU_TENANT", "test-nobody"}};
  const std::string mixed = ask("v1 list ComputeRunningProcesses_v3", nobody).out;
  EXPECT_EQ(field(line_of(mixed, "v1"), "total="), (40448 + 20096 + 9984) * kMiB + 4 * kGiB);
  EXPECT_EQ(field(line_of(mixed, "v1"), "used="), 3 * kGiB + 512 * kMiB);
  Holdings uncapped = held_by({first->pid()}, kFirst);
  uncapped[stranger->pid()] = node_->used_by_pid(kFourth, stranger->pid());
  EXPECT_EQ(listed(mixed, "ComputeRunningProcesses_v3"), uncapped) << mixed;
  unlink((ledger_path() + "-other").c_str());
}

TEST_F(NvmlMigTest, NamesOfGpusMeanEachOfTheirInstances) {
  EXPECT_EQ(total_of(kSecond, "50%"), mib(10048)) << "percent of the instance's own memory";
  EXPECT_EQ(total_of(kSecond, uuid(kSecond) + "=25%"), mib(5024));
  EXPECT_EQ(total_of(kSecond, uuid(kFirst) + "=4GiB"), mib(20096)) << "another instance's cap";
  EXPECT_EQ(total_of(kSecond, uuid(kGpu) + "=4GiB"), mib(4096)) << "its GPU's name";
  EXPECT_EQ(total_of(kSecond, "0=4GiB"), mib(4096)) << "its GPU's index";
  EXPECT_EQ(total_of(kSecond, "1=4GiB"), mib(20096)) << "GPU 1 is another one, though this is "
                                                        "instance 1 of GPU 0";
  EXPECT_EQ(total_of(kWhole, "1=4GiB"), mib(4096));
  EXPECT_EQ(total_of(kSecond, "0000:18:00.0=4GiB"), mib(4096)) << "its GPU's bus id";
  EXPECT_EQ(total_of(kSecond, uuid(kWhole) + "=4GiB"), mib(20096));
}

TEST_F(NvmlMigTest, NothingIsCappedTwiceWhereNvmlCallsItself) {
  // The first version asks the second through the PLT: half of a half would be shown.
  const std::string text = ask("v1 instance 1 v1", capped("50%")).out;
  EXPECT_EQ(field(line_of(text, "v1", 1), "total="), 10048 * kMiB) << text;
  EXPECT_EQ(field(line_of(text, "v1"), "total="), (20224 + 10048 + 4992 + 4992) * kMiB);
}

TEST_F(NvmlMigTest, WhatIsNotMemoryIsNotTouched) {
  const std::string commands =
      "mig instance 0 mig instance 3 mig device 1 mig uuid " + uuid(kFirst);
  EXPECT_EQ(ask(commands, capped("8GiB")).out, ask(commands, bare()).out);
}

}  // namespace
}  // namespace fracgpu::test
