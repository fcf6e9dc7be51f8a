// How often the library reads NVML's process lists, and what it makes of what it read.
//
// One list takes milliseconds, and the driver's global locks meanwhile, so that every process of
// the machine waits (MangoHud PR 2104: 4.49 ms).
#include "sim/node/calls.h"
#include "tests/integration/rig.h"

namespace fracgpu::test {
namespace {

class ReadingsTest : public Rig {
 protected:
  static constexpr char kLimit[] = "1GiB";

  ReadingsTest() : calls_path_(node_path_ + ".calls") {}
  ~ReadingsTest() override { unlink(calls_path_.c_str()); }

  std::unique_ptr<Program> start(const std::vector<std::string>& commands,
                                 const Environment& extra = {}, const char* limit = kLimit) {
    std::vector<std::string> args = {TEST_REPEAT_CLIENT};
    args.insert(args.end(), commands.begin(), commands.end());
    return std::make_unique<Program>(
        args, capped(limit) + Environment{{sim::kCallsVariable, calls_path_}} + extra);
  }

  // What the commands that a program makes between two waits cost. It must end with the first.
  uint64_t lists_between(const std::string& commands, const Environment& extra = {}) {
    auto program = start(words("wait " + commands + " wait"), extra);
    program->read_until_ready();
    const auto calls = sim::CallCounts::open(calls_path_);
    const uint64_t before = calls->of_process_lists();
    program->go_on();
    for (const std::string& line : program->read_until_ready()) {
      EXPECT_EQ(field(line, "rc="), 0) << line;
    }
    return calls->of_process_lists() - before;
  }

  // The driver reports to the library what it holds when the program asks for far too much.
  void expect_books_agree_when_read(Program& program) {
    const auto lines = program.read_until_ready();
    EXPECT_EQ(field(lines.back(), "rc="), 2) << lines.back();
    expect_books_agree(program.pid(), "after a reading");
  }

 private:
  std::string calls_path_;
};

TEST_F(ReadingsTest, FiftyPairsOfModules) {
  EXPECT_LE(lists_between("modules 50", {{"FRACGPU_SIM_MODULE_MIB", "4"}}), 10u);
}

// As heaps do that share chunks among modules.
TEST_F(ReadingsTest, FiftyPairsOfModulesWhoseMemoryTheDriverKeeps) {
  const Environment kept = {{"FRACGPU_SIM_MODULE_MIB", "4"}, {"FRACGPU_SIM_MODULES_KEPT", "1"}};
  EXPECT_LE(lists_between("modules 50", kept), 10u);
}

TEST_F(ReadingsTest, ModulesInSteadyState) {
  EXPECT_LE(lists_between("modules 5000", {{"FRACGPU_SIM_MODULE_MIB", "4"}}), 40u);
}

TEST_F(ReadingsTest, FiftyPairsOfArrays) {
  EXPECT_LE(lists_between("arrays 50"), 10u);
}

TEST_F(ReadingsTest, ArraysInSteadyState) {
  EXPECT_LE(lists_between("arrays 5000"), 40u);
}

TEST_F(ReadingsTest, LooksAtTheMemory) {
  EXPECT_EQ(lists_between("looks 50"), 0u);
}

// CUDA 13's cudaGetSymbolAddress and cudaMemcpyToSymbol look a library's global up each time.
TEST_F(ReadingsTest, GlobalsOfALibraryThatIsLoaded) {
  EXPECT_LE(lists_between("globals 50", {{"FRACGPU_SIM_MODULE_MIB", "4"}}), 5u);
}

TEST_F(ReadingsTest, WhatIsSkippedIsChargedAllTheSame) {
  auto program = start(words("modules 5 load any wait unload toomuch wait"),
                       {{"FRACGPU_SIM_MODULE_MIB", "4"}});
  program->read_until_ready();
  expect_books_agree(program->pid(), "loaded");
  program->go_on();
  expect_books_agree_when_read(*program);
}

TEST_F(ReadingsTest, ManySmallArraysAreChargedAndGivenBack) {
  auto program = start(words("makearrays 2000 wait droparrays 2000 toomuch wait"));
  program->read_until_ready();
  const uint64_t real = node_->used_by_pid(0, program->pid());
  EXPECT_GE(ledger().held(key(), program->pid()), real);
  // Charged a chunk each, 2000 arrays would not fit; what was not read yet is a bounded excess.
  EXPECT_LE(ledger().held(key(), program->pid()), real + 64 * kMiB);
  program->go_on();
  expect_books_agree_when_read(*program);
}

// Two instances of one module take twice the memory, whatever one takes.
TEST_F(ReadingsTest, MoreInstancesOfAKnownModuleAreCharged) {
  auto program = start(words("modules 5 load any load any load any load any wait"),
                       {{"FRACGPU_SIM_MODULE_MIB", "4"}, {"FRACGPU_SIM_MODULES_KEPT", "1"}});
  program->read_until_ready();
  EXPECT_GE(ledger().held(key(), program->pid()), node_->used_by_pid(0, program->pid()));
}

// What a launch made the driver take is not the size of the module that is loaded next.
TEST_F(ReadingsTest, WhatALaunchTookIsNotTheNextModules) {
  const Environment grows = {{"FRACGPU_SIM_LAUNCH_MIB", "400"}};
  auto program = start({"load", "2", "launch", "load", "4 MiB", "alloc", "288", "load", "6 MiB",
                        "load", "8 MiB", "wait"},
                       grows);
  for (const std::string& line : program->read_until_ready()) {
    EXPECT_EQ(field(line, "rc="), 0) << line;
  }
  expect_books_agree(program->pid(), "all is loaded");
  EXPECT_LE(node_->tenant_high_water(0, tenant_), 1024 * kMiB);
}

// A neighbour fills the rest of the cap, so that nothing is tried with what is left.
TEST_F(ReadingsTest, WhatALaunchTookIsNotTheNextModulesBesideANeighbour) {
  auto other = start_client(kLimit, words("init retain wait"));
  other->read_until_ready();
  auto program = start({"load", "2", "launch", "load", "4 MiB", "load", "6 MiB", "wait"},
                       {{"FRACGPU_SIM_LAUNCH_MIB", "400"}});
  for (const std::string& line : program->read_until_ready()) {
    EXPECT_EQ(field(line, "rc="), 0) << line;
  }
}

TEST_F(ReadingsTest, AHugeModuleIsNotTakenForTheNextOnesSize) {
  auto program =
      start({"load", "600 MiB", "alloc", "100", "load", "2 MiB", "load", "4 MiB", "wait"});
  for (const std::string& line : program->read_until_ready()) {
    EXPECT_EQ(field(line, "rc="), 0) << line;
  }
}

}  // namespace
}  // namespace fracgpu::test
