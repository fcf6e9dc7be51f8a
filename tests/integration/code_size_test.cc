// Code tells what it takes on a device, so that what does not fit is refused before it is there,
// and what fits is not refused because something larger came before it.
#include "tests/integration/rig.h"

namespace fracgpu::test {
namespace {

constexpr int kOutOfResources = 0x1008, kOutOfMemory = 2;

class HsaCode : public Rig {
 protected:
  static constexpr char kLimit[] = "60MiB";

  HsaCode() : Rig("tiny-amd", 1) {}

  std::unique_ptr<Program> start(const std::string& commands, const Environment& extra = {}) const {
    std::vector<std::string> args = {TEST_HSA_PROGRAM};
    for (const std::string& word : words(commands)) args.push_back(word);
    return std::make_unique<Program>(args, capped(kLimit) + extra);
  }
};

TEST_F(HsaCode, ALargerOneNeverPassesTheCap) {
  for (const char* second : {"code 70MiB", "codefile 70MiB"}) {
    auto program = start(std::string("init code 4MiB ") + second + " wait");
    const auto lines = program->read_until_ready();
    ASSERT_EQ(lines.size(), 3u) << program->finish().err;
    EXPECT_EQ(field(lines[1], "rc="), 0) << second;
    EXPECT_EQ(field(lines[2], "rc="), kOutOfResources) << second;
    expect_books_agree(program->pid(), second);
    const Outcome outcome = program->finish();
    EXPECT_NE(outcome.err.find("asked 70.0 MiB"), std::string::npos) << outcome.err;
    EXPECT_LE(node_->tenant_high_water(0, tenant_), 60 * kMiB) << second;
  }
}

TEST_F(HsaCode, ASmallOneIsGrantedAfterALargeOne) {
  // Beside a neighbour, which could be pushed over the cap.
  auto neighbour = start("init wait");
  neighbour->read_until_ready();
  auto program = start("init code 40243KiB code 49KiB codefile 49KiB wait");
  for (const std::string& line : program->read_until_ready()) EXPECT_EQ(field(line, "rc="), 0);
  expect_books_agree(program->pid(), "loaded");
  EXPECT_EQ(program->finish().err, "");
}

TEST_F(HsaCode, TheCapIsFilledToTheLastPage) {
  auto program = start("init code 10MiB wait");
  program->read_until_ready();
  const uint64_t left = 60 * kMiB - node_->used_by_pid(0, program->pid());
  program->go_on_with("code " + std::to_string(left + 1) + " code " + std::to_string(left) +
                      " code 4KiB unload 1 code 4KiB wait");
  const auto lines = program->read_until_ready();
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(field(lines[0], "rc="), kOutOfResources);
  EXPECT_EQ(field(lines[1], "rc="), 0);
  EXPECT_EQ(field(lines[2], "rc="), kOutOfResources);
  EXPECT_EQ(field(lines[3], "rc="), 0);
  EXPECT_EQ(field(lines[4], "rc="), 0);
  expect_books_agree(program->pid(), "full");
  program->finish();
  EXPECT_EQ(node_->tenant_high_water(0, tenant_), 60 * kMiB);
}

// Where the kernel does not tell what this process holds, code counts by what it says, and comes
// back when it is unloaded.
TEST_F(HsaCode, InAPrivatePidNamespaceNothingLeaks) {
  if (!can_make_pid_namespace()) GTEST_SKIP() << "no PID namespace may be made here";
  std::string commands = "init";
  for (int i = 0; i < 10; ++i) commands += " code 20MiB unload " + std::to_string(i);
  std::vector<std::string> args = {"unshare", "--pid", "--fork", TEST_HSA_PROGRAM};
  for (const std::string& word : words(commands + " code 20MiB code 30MiB")) args.push_back(word);
  const Outcome outcome = run(args, capped(kLimit));
  for (int i = 0; i < 11; ++i) EXPECT_EQ(field(line_of(outcome.out, "code", i), "rc="), 0) << i;
  EXPECT_EQ(field(line_of(outcome.out, "code", 11), "rc="), kOutOfResources);
  EXPECT_LE(node_->tenant_high_water(0, tenant_), 60 * kMiB);
}

class CudaCode : public Rig {
 protected:
  // Under this cap, two processes have contexts of 256 MiB, and 188 MiB are left.
  static constexpr char kLimit[] = "700MiB";

  CudaCode() : neighbour_(start_client(kLimit, words("init retain wait"))) {
    neighbour_->read_until_ready();
  }

  std::unique_ptr<Program> start(const std::string& commands) const {
    std::vector<std::string> args = {TEST_REPEAT_CLIENT};
    for (const std::string& word : words(commands)) args.push_back(word);
    return std::make_unique<Program>(args, capped(kLimit));
  }

  std::unique_ptr<Program> neighbour_;
};

TEST_F(CudaCode, ASmallOneIsGrantedAfterALargeOne) {
  // KiB: 150 MiB, and what fits into the 38 that are left.
  auto program = start("cubin 153600 cubin 49 fatbin 30720 library 4096 wait");
  for (const std::string& line : program->read_until_ready()) {
    EXPECT_EQ(field(line, "rc="), 0) << line;
  }
  expect_books_agree(program->pid(), "loaded");
  EXPECT_EQ(node_->used_by_pid(0, program->pid()), (256 + 150 + 2 + 30 + 4) * kMiB);
}

TEST_F(CudaCode, WhatDoesNotFitIsNotLoaded) {
  for (const char* way : {"cubin 194560", "fatbin 194560", "library 194560"}) {
    auto program = start(std::string(way) + " wait");
    const auto lines = program->read_until_ready();
    EXPECT_EQ(field(lines.back(), "rc="), kOutOfMemory) << way;
    expect_books_agree(program->pid(), way);
    program->finish();
  }
  EXPECT_EQ(node_->tenant_high_water(0, tenant_), 512 * kMiB);
}

// A lone process is tried with what is left, if that is as much as the image says.
TEST_F(CudaCode, AloneItMayTakeAllThatIsLeft) {
  neighbour_->finish();
  auto program = start("cubin 454656 cubin 2048 wait");
  const auto lines = program->read_until_ready();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(field(lines[0], "rc="), 0) << lines[0];
  EXPECT_EQ(field(lines[1], "rc="), kOutOfMemory) << lines[1];
  expect_books_agree(program->pid(), "full");
  EXPECT_EQ(node_->tenant_high_water(0, tenant_), 700 * kMiB);
}

}  // namespace
}  // namespace fracgpu::test
