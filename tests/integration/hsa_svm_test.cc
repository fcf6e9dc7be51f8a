// Plain host memory that a program has moved to a device, and that no call asks room for.
#include "tests/integration/rig.h"

namespace fracgpu::test {
namespace {

constexpr int kOutOfResources = 0x1008;

class HsaSvm : public Rig {
 protected:
  HsaSvm() : Rig("tiny-amd", 1) {}

  std::unique_ptr<Program> start(const std::string& commands) const {
    std::vector<std::string> args = {TEST_HSA_PROGRAM};
    for (const std::string& word : words(commands)) args.push_back(word);
    return std::make_unique<Program>(args, capped("60MiB"));
  }
};

// The kernel's count is read when code is loaded.
TEST_F(HsaSvm, ItIsChargedAsLongAsTheKernelCountsIt) {
  auto program = start("init prefetch 40MiB code 4KiB wait");
  for (const std::string& line : program->read_until_ready()) EXPECT_EQ(field(line, "rc="), 0);
  EXPECT_GE(node_->used_by_pid(0, program->pid()), 40 * kMiB);
  expect_books_agree(program->pid(), "on the device");
  program->go_on_with("alloc 30MiB fetchback 0 code 4KiB alloc 30MiB wait");
  const auto lines = program->read_until_ready();
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(field(lines[0], "rc="), kOutOfResources);
  EXPECT_EQ(field(lines[1], "rc="), 0);
  EXPECT_EQ(field(lines[2], "rc="), 0);
  EXPECT_EQ(field(lines[3], "rc="), 0);
  expect_books_agree(program->pid(), "on the host again");
}

// As on a card that is full, where nobody is told whether a prefetch has done anything. Here it may
// pass the cap: see NOT_COVERED.md.
TEST_F(HsaSvm, APrefetchIsNotRefused) {
  auto program = start("init prefetch 100MiB wait");
  EXPECT_EQ(field(program->read_until_ready().back(), "rc="), 0);
  EXPECT_GE(node_->used_by_pid(0, program->pid()), 100 * kMiB);
  EXPECT_EQ(program->finish().err, "");
}

}  // namespace
}  // namespace fracgpu::test
