// Memory that calls make the driver take without naming a size: modules and limits.
#include "tests/integration/rig.h"

namespace fracgpu::test {
namespace {

class OverheadTest : public Rig {
 protected:
  // Room for a context of 256 MiB, 248 MiB of memory and 8 MiB more.
  static constexpr char kLimit[] = "512MiB";

  static Environment modules_of(const char* mib) { return {{"FRACGPU_SIM_MODULE_MIB", mib}}; }
};

TEST_F(OverheadTest, TheFirstModuleIsTriedWithWhatIsLeft) {
  auto program =
      start_client(kLimit, words("init retain alloc 248MiB module wait"), modules_of("4"));
  for (const std::string& line : program->read_until_ready()) {
    EXPECT_EQ(field(line, "rc="), 0) << line;
  }
  expect_books_agree(program->pid(), "loaded");
  EXPECT_EQ(node_->tenant_high_water(0, tenant_), 508 * kMiB);
}

TEST_F(OverheadTest, AModuleThatDoesNotFitIsUnloadedAgain) {
  auto program =
      start_client(kLimit, words("init retain alloc 248MiB module wait"), modules_of("16"));
  EXPECT_EQ(field(program->read_until_ready().back(), "rc="), 2);
  expect_books_agree(program->pid(), "refused");
  EXPECT_EQ(node_->used_by_pid(0, program->pid()), 504 * kMiB);
}

TEST_F(OverheadTest, NoModuleIsTriedWhereOthersCouldBePushedOverTheCap) {
  auto other = start_client("768MiB", words("init retain wait"));
  other->read_until_ready();
  const Outcome outcome =
      client("768MiB", words("init retain alloc 248MiB module"), modules_of("16"));
  EXPECT_EQ(field(line_of(outcome.out, "alloc"), "rc="), 0) << outcome.out << outcome.err;
  EXPECT_EQ(field(line_of(outcome.out, "module"), "rc="), 2);
  EXPECT_EQ(node_->tenant_high_water(0, tenant_), 760 * kMiB);
}

// The driver counts managed memory when it is on the device. Until then its charge must not be
// taken for the context's.
// As with closed kernel modules in a container: what the device's use grows by is all that is told.
TEST_F(OverheadTest, ModulesCountWhereTheDriverDoesNotTellWhoseMemoryItIs) {
  const Environment untold = {{"FRACGPU_SIM_FAIL", "nvmlDeviceGetComputeRunningProcesses_v2:1+=3"}};
  std::vector<std::string> args = {TEST_REPEAT_CLIENT};
  for (int i = 0; i < 10; ++i) args.insert(args.end(), {"load", std::to_string(100 + i) + " MiB"});
  args.insert(args.end(),
              {"wait", "unload", "unload", "load", "150 MiB", "load", "200 MiB", "wait"});
  Program program(args, capped("1GiB") + untold);
  // 256 MiB for the context, and 7 modules of 100 to 106 MiB.
  std::vector<std::string> lines = program.read_until_ready();
  ASSERT_EQ(lines.size(), 10u);
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(field(lines[i], "rc="), i < 7 ? 0 : 2) << i;
  expect_books_agree(program.pid(), "loaded");
  program.go_on();
  // What is unloaded makes room again, and no more than that.
  lines = program.read_until_ready();
  ASSERT_EQ(lines.size(), 4u);
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(field(lines[i], "rc="), i < 3 ? 0 : 2) << i;
  expect_books_agree(program.pid(), "unloaded and loaded");
  EXPECT_LE(node_->used_by_pid(0, program.pid()), kGiB);
  program.finish();
}

TEST_F(OverheadTest, ManagedMemoryOnTheHostHidesNoContext) {
  auto program =
      start_client("1GiB", words("init retain managed 100MiB alloc 2GiB ctxcreate prefetch 0 wait"),
                   {{"FRACGPU_SIM_MANAGED", "late"}});
  const auto lines = program->read_until_ready();
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(field(lines[3], "rc="), 2) << "not refused, so the driver's report was not read";
  EXPECT_EQ(field(lines[4], "rc="), 0) << lines[4];
  EXPECT_EQ(field(lines[5], "rc="), 0) << lines[5];
  EXPECT_EQ(node_->used_by_pid(0, program->pid()), 612 * kMiB);
  expect_books_agree(program->pid(), "on the device");
}

// What is freed in stream order keeps its chunk for a while, whoever else was in it.
TEST_F(OverheadTest, AChunkThatLingersStaysCharged) {
  Program program({TEST_REPEAT_CLIENT, "lingering", "wait"}, capped("1GiB"));
  const auto lines = program.read_until_ready();
  EXPECT_EQ(field(lines[0], "rc="), 0) << lines[0];
  const uint64_t used = node_->used_by_pid(0, program.pid());
  EXPECT_GE(ledger().held(uuid(), program.pid()), used);
}

TEST_F(OverheadTest, SmallManagedAllocationsShareAPage) {
  std::string commands = "init retain";
  for (int i = 0; i < 300; ++i) commands += " managed 4KiB";
  auto program = start_client(kLimit, words(commands + " wait freeall wait"));
  for (const std::string& line : program->read_until_ready()) {
    EXPECT_EQ(field(line, "rc="), 0) << line;
  }
  EXPECT_EQ(ledger().held(key(), program->pid()), 258 * kMiB);
  expect_books_agree(program->pid(), "allocated");
  program->go_on();
  program->read_until_ready();
  expect_books_agree(program->pid(), "freed");
}

// A driver that does not tell how large an array will be, before CUDA 11.6.
TEST_F(OverheadTest, ArraysOfR470AreEstimatedWell) {
  const Environment r470 = {{"LD_LIBRARY_PATH", TEST_SIM_DIR "/r470:" TEST_SIM_DIR},
                            {"FRACGPU_SIM_DRIVER_VERSION", "11040"}};
  Program program({TEST_REPEAT_CLIENT, "square", "2048", "wait"}, capped(kLimit) + r470);
  EXPECT_EQ(field(program.read_until_ready().back(), "rc="), 0);
  const uint64_t real = node_->used_by_pid(0, program.pid());
  EXPECT_EQ(real, (256 + 3 * 16) * kMiB);
  EXPECT_EQ(ledger().held(key(), program.pid()), real);
}

TEST_F(OverheadTest, TwoThreadsRaiseOneLimitAtOnce) {
  // What the limit takes fits once, not twice.
  const Outcome outcome = client(kLimit, words("init retain heaps 200MiB meminfo"),
                                 {{"FRACGPU_SIM_DELAY_US", "cuCtxSetLimit=200000"}});
  EXPECT_EQ(field(line_of(outcome.out, "heaps"), "rc="), 0) << outcome.err;
  EXPECT_EQ(field(line_of(outcome.out, "meminfo"), "free="), static_cast<long long>(64 * kMiB));
}

TEST_F(OverheadTest, WhatGoesWithAContextIsGivenBackOnce) {
  // While the driver has ended the context and is yet to return, the other thread has its count
  // read three times; and while it is read once more, the thread looks what is free.
  const Outcome outcome =
      client("2GiB", words("init retain endbeside 1GiB meminfo"),
             {{"FRACGPU_SIM_DELAY_US",
               "end of cuCtxDestroy_v2=1000000,nvmlDeviceGetComputeRunningProcesses_v2=100000"}});
  EXPECT_EQ(field(line_of(outcome.out, "endbeside"), "rc="), 0) << outcome.out << outcome.err;
  const auto at_last = field(line_of(outcome.out, "meminfo"), "free=");
  EXPECT_EQ(at_last, static_cast<long long>((2048 - 256) * kMiB));
  EXPECT_LE(field(line_of(outcome.out, "endbeside"), "most="), at_last);
}

TEST_F(OverheadTest, ALimitIsLoweredWhenNothingIsLeft) {
  auto program =
      start_client(kLimit, words("init retain heap 40MiB fill 2MiB heap 8MiB meminfo wait"));
  const auto lines = program->read_until_ready();
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(field(lines[2], "rc="), 0) << lines[2];
  EXPECT_EQ(field(lines[4], "rc="), 0) << lines[4];
  EXPECT_EQ(field(lines[5], "free="), static_cast<long long>(32 * kMiB));
  expect_books_agree(program->pid(), "lowered");
  EXPECT_EQ(node_->tenant_high_water(0, tenant_), 512 * kMiB);
}

}  // namespace
}  // namespace fracgpu::test
