// The processes that NVML lists inside a tenant: its own, with what the ledger says they hold.
#include <signal.h>
#include <unistd.h>

#include <set>

#include "tests/integration/nvml_rig.h"

namespace fracgpu::test {
namespace {

constexpr const char* kLists[] = {
    "ComputeRunningProcesses",    "ComputeRunningProcesses_v2",    "ComputeRunningProcesses_v3",
    "GraphicsRunningProcesses",   "GraphicsRunningProcesses_v2",   "GraphicsRunningProcesses_v3",
    "MPSComputeRunningProcesses", "MPSComputeRunningProcesses_v2", "MPSComputeRunningProcesses_v3"};

// Two processes of the tenant, one of another tenant and one of nobody's.
class NvmlProcessesTest : public NvmlRig {
 protected:
  NvmlProcessesTest() : NvmlRig("2xa100-40gb", 256) {}
  ~NvmlProcessesTest() override { unlink((ledger_path() + "-other").c_str()); }

  void start_everybody() {
    const auto use = [](const char* size) {
      return words(std::string("init retain alloc ") + size + " wait");
    };
    first_ = start_client("8GiB", use("3GiB"));
    second_ = start_client("8GiB", use("700MiB"));
    other_ = start_client("8GiB", use("2GiB"), other_tenant());
    std::vector<std::string> args = {TEST_CLIENT};
    for (const std::string& word : use("1GiB")) args.push_back(word);
    nobodys_ = std::make_unique<Program>(args, bare());
    for (Program* program : {first_.get(), second_.get(), other_.get(), nobodys_.get()}) {
      program->read_until_ready();
    }
  }
  Holdings own() { return held_by({first_->pid(), second_->pid()}); }

  std::unique_ptr<Program> first_, second_, other_, nobodys_;
};

TEST_F(NvmlProcessesTest, OwnOnesAloneInEveryGeneration) {
  start_everybody();
  std::string commands;
  for (const char* list : kLists) commands += std::string("list ") + list + " ";
  const Environment graphics = {{"FRACGPU_SIM_NVML_GRAPHICS", "1"}};
  const std::string with = ask(commands + "details 0", capped("8GiB") + graphics).out;
  const std::string without = ask(commands + "details 0", bare() + graphics).out;
  ASSERT_EQ(known_to_node().size(), 4u);
  for (const std::string list : kLists) {
    const bool mps = list.rfind("MPS", 0) == 0;
    EXPECT_EQ(listed(with, list), mps ? Holdings() : own()) << list << "\n" << with;
    EXPECT_EQ(listed(without, list), mps ? Holdings() : known_to_node()) << list;
    EXPECT_EQ(field(line_of(with, list), "intact="), 1) << list;
  }
  EXPECT_EQ(listed(with, "details"), own());
  EXPECT_EQ(listed(without, "details"), known_to_node());
  EXPECT_EQ(listed(ask("details 1", capped("8GiB") + graphics).out, "details"), own());
  EXPECT_EQ(listed(ask("details 2", capped("8GiB") + graphics).out, "details"), Holdings());
  EXPECT_EQ(with.find("gi=0 "), with.npos) << "without MIG an entry names no instance";
}

TEST_F(NvmlProcessesTest, TheRoomThatTheTenantNeedsIsEnough) {
  start_everybody();
  for (const std::string list : {"list ComputeRunningProcesses", "list ComputeRunningProcesses_v2",
                                 "list ComputeRunningProcesses_v3", "details 0"}) {
    const std::string name = list == "details 0" ? "details" : list.substr(5);
    for (const int room : {0, 1, 2, 3}) {
      const std::string command = list + " " + std::to_string(room);
      const std::string text = ask(command, capped("8GiB")).out;
      const std::string line = line_of(text, name);
      EXPECT_EQ(field(line, "rc="), room < 2 ? 7 : 0) << text;
      EXPECT_EQ(field(line, "count="), 2) << text;
      EXPECT_EQ(field(line, "intact="), 1) << text;
      EXPECT_EQ(listed(text, name), room < 2 ? Holdings() : own()) << text;
      EXPECT_EQ(field(line_of(ask(command, bare()).out, name), "count="), 4);
    }
    const std::string nobody =
        ask(list + " 0", capped("8GiB") + Environment{{"FRACGPU_TENANT", "test-nobody"}}).out;
    EXPECT_EQ(field(line_of(nobody, name), "rc="), 0) << "no process: no room is needed";
    EXPECT_EQ(field(line_of(nobody, name), "count="), 0);
  }
}

TEST_F(NvmlProcessesTest, ErrorsAreTheLibrarysOwn) {
  start_everybody();
  const std::string commands =
      "null nolist ComputeRunningProcesses 3 nolist ComputeRunningProcesses_v3 3 "
      "details 3 details 0 8 attributes GetAttributes attributes GetAttributes_v2";
  const std::string with = ask(commands, capped("8GiB")).out, without = ask(commands, bare()).out;
  for (const char* word : {"null", "nolist", "GetAttributes", "GetAttributes_v2"}) {
    EXPECT_FALSE(line_of(without, word).empty());
    EXPECT_EQ(line_of(with, word), line_of(without, word));
  }
  EXPECT_EQ(line_of(with, "details"), line_of(without, "details")) << "a mode that does not exist";
}

TEST_F(NvmlProcessesTest, WithoutACapEverythingIsShown) {
  start_everybody();
  const std::string preloaded = capped("8GiB")["LD_PRELOAD"];
  for (const Environment& environment :
       {bare() + Environment{{"LD_PRELOAD", preloaded}}, capped("1=2GiB")}) {
    const std::string text = ask("list ComputeRunningProcesses_v3 details 0 v2",
                                 environment + Environment{{"FRACGPU_TENANT", "test-nobody"}})
                                 .out;
    EXPECT_EQ(listed(text, "ComputeRunningProcesses_v3"), known_to_node()) << text;
    EXPECT_EQ(listed(text, "details"), known_to_node());
    EXPECT_EQ(field(line_of(text, "v2"), "total="), 40 * kGiB);
  }
}

TEST_F(NvmlProcessesTest, TheDeadAreNotShownThoughTheirMemoryLingers) {
  const Environment linger = {{sim::kLingerVariable, "3600000"}};
  auto gone = start_client("8GiB", words("init retain alloc 3GiB wait"), linger);
  first_ = start_client("8GiB", words("init retain alloc 1GiB wait"));
  gone->read_until_ready();
  first_->read_until_ready();
  gone->kill(SIGKILL);
  gone->finish();
  ASSERT_EQ(known_to_node().size(), 2u) << "the driver still knows it";
  EXPECT_EQ(listed(ask("list ComputeRunningProcesses_v3", capped("8GiB")).out,
                   "ComputeRunningProcesses_v3"),
            held_by({first_->pid()}));
  first_->kill(SIGKILL);
  first_->finish();
  const std::string text = ask("v1 list ComputeRunningProcesses_v3", capped("8GiB")).out;
  EXPECT_EQ(field(line_of(text, "ComputeRunningProcesses_v3"), "count="), 0) << text;
  EXPECT_EQ(field(line_of(text, "v1"), "used="), 0);
}

// The driver's accounts: of the tenant's own processes with the most that they have held by the
// ledger, of those that have ended as the driver has them, and of nobody else who runs.
TEST_F(NvmlProcessesTest, AccountsAreOfOwnOnesAndOfTheEnded) {
  const Environment accounting = {{"FRACGPU_SIM_NVML_ACCOUNTING", "4194303:700"}};
  start_everybody();
  auto freed = start_client("8GiB", words("init retain alloc 2GiB free 0 wait"));
  freed->read_until_ready();
  const auto pids_in = [&](const Environment& environment) {
    std::set<pid_t> pids;
    for (const auto& [pid, ignored] : listed(ask("accounts", environment).out, "accounts")) {
      pids.insert(pid);
    }
    return pids;
  };
  EXPECT_EQ(pids_in(bare() + accounting).size(), 6u);
  EXPECT_EQ(pids_in(capped("8GiB") + accounting),
            (std::set<pid_t>{first_->pid(), second_->pid(), freed->pid(), 4194303}));
  EXPECT_EQ(field(line_of(ask("accounts 4", capped("8GiB") + accounting).out, "accounts"), "rc="),
            0);
  const std::string full = ask("accounts 3", capped("8GiB") + accounting).out;
  EXPECT_EQ(field(line_of(full, "accounts"), "rc="), 7) << full;
  EXPECT_EQ(field(line_of(full, "accounts"), "count="), 4) << full;

  const auto account = [&](pid_t pid, const Environment& environment) {
    return ask("account " + std::to_string(pid), environment + accounting).out;
  };
  for (const char* version : {"account", "account2"}) {
    const std::string own = line_of(account(freed->pid(), capped("8GiB")), version);
    EXPECT_EQ(field(own, "most="), 2 * kGiB + 256 * kMiB) << own;
    EXPECT_EQ(field(own, "running="), 1);
    EXPECT_EQ(field(line_of(account(freed->pid(), bare()), version), "most="), 256 * kMiB);
    const std::string others = line_of(account(other_->pid(), capped("8GiB")), version);
    EXPECT_EQ(field(others, "rc="), 6) << others;
    EXPECT_EQ(field(others, "most="), 0) << others;
    EXPECT_EQ(field(line_of(account(other_->pid(), bare()), version), "rc="), 0);
    const std::string ended = line_of(account(4194303, capped("8GiB")), version);
    EXPECT_EQ(field(ended, "most="), 700 * kMiB) << ended;
    EXPECT_EQ(field(line_of(account(4194302, capped("8GiB")), version), "rc="), 6) << "nobody";
  }
  EXPECT_EQ(field(line_of(ask("account 1", capped("8GiB")).out, "account"), "rc="), 3)
      << "without accounting mode";
}

// Drivers whose third generation of lists is not what nvml.h says, and one that hides its version.
TEST_F(NvmlProcessesTest, WhatIsNotUnderstoodIsLeftAloneAndSaidOnce) {
  start_everybody();
  struct Case {
    const char* driver;
    const char* list;
    bool filtered;
  };
  for (const Case& one : {Case{"535.54.03", "ComputeRunningProcesses_v3", false},
                          Case{"535.98", "ComputeRunningProcesses_v3", false},
                          Case{"535.54.03", "ComputeRunningProcesses_v2", true},
                          Case{"535.104.05", "ComputeRunningProcesses_v3", true},
                          Case{"530.41.03", "ComputeRunningProcesses_v3", true},
                          Case{"unknown", "ComputeRunningProcesses_v2", false},
                          Case{"unknown", "ComputeRunningProcesses", false}}) {
    const std::string twice = std::string("list ") + one.list + " 12 list " + one.list + " 12";
    const Outcome outcome =
        ask(twice, capped("8GiB") + Environment{{"FRACGPU_SIM_NVML_DRIVER", one.driver}});
    const std::string line = line_of(outcome.out, one.list);
    EXPECT_EQ(field(line, "count="), one.filtered ? 2 : 4) << one.driver << outcome.out;
    const size_t said = outcome.err.find("process lists are shown as they are");
    EXPECT_EQ(said == outcome.err.npos, one.filtered) << one.driver << outcome.err;
    EXPECT_EQ(outcome.err.rfind("process lists are shown as they are"), said) << outcome.err;
  }
}

TEST_F(NvmlProcessesTest, AfterAForkAndAnExecTheProcessIsShownOnce) {
  auto program = start_client(
      "8GiB", words("init retain alloc 1GiB exec init retain alloc 2GiB fork init retain alloc "
                    "500MiB wait"));
  program->read_until_ready();
  const Holdings own = listed(ask("list ComputeRunningProcesses_v3", capped("8GiB")).out,
                              "ComputeRunningProcesses_v3");
  EXPECT_EQ(own.size(), known_to_node().size());
  EXPECT_EQ(own, known_to_node());
}

}  // namespace
}  // namespace fracgpu::test
