// What NVML says of a process is believed only where it can be true: with each driver's faults, the
// cap holds, and the ledger has what the node has wherever the driver tells it.
#include <signal.h>
#include <unistd.h>

#include <fstream>

#include "tests/integration/nvml_rig.h"

namespace fracgpu::test {
namespace {

constexpr uint64_t kCap = 4 * kGiB, kContext = 256 * kMiB;
// What is charged for one of which nothing tells.
constexpr uint64_t kEstimatedContext = 512 * kMiB;

class UsageRig : public NvmlRig {
 protected:
  explicit UsageRig(const NvidiaDriver& driver) : NvmlRig("a100-40gb", 256, driver) {}
  ~UsageRig() override { unlink(said_path().c_str()); }

  // The one process of the tenant that the node knows.
  sim::ProcessInfo only_process() {
    for (const sim::ProcessInfo& process : node_->processes()) {
      if (process.tenant == tenant_ && !process.lingering) return process;
    }
    ADD_FAILURE() << "no process of the tenant has opened the driver";
    return {};
  }

  // Of the tenant alone.
  std::string status() const {
    return run({TEST_COMMAND, "status", tenant_, "--json"}, bare()).out;
  }

  // Allocates until nothing more is granted, with the driver asked in between.
  void expect_cap_holds(Program& program) {
    program.go_on();
    const auto lines = program.read_until_ready();
    ASSERT_FALSE(lines.empty());
    EXPECT_GT(field(lines.back(), "count="), 0);
    EXPECT_LE(node_->tenant_high_water(0, tenant_), kCap);
    EXPECT_GE(ledger().total_held(key()), node_->tenant_used(0, tenant_));
  }
  static std::vector<std::string> greedy(const std::string& start) {
    return words(start + " retain alloc 1GiB alloc 30GiB wait module alloc 30GiB fill 64MiB wait");
  }

  // From now on every process is said to have this much; an empty text ends it.
  std::string said_path() const { return node_path_ + ".says"; }
  void say(const std::string& mib) const {
    if (mib.empty()) {
      unlink(said_path().c_str());
    } else {
      std::ofstream(said_path()) << mib;
    }
  }
  Environment told_otherwise() const { return {{"FRACGPU_SIM_NVML_SAYS", said_path()}}; }
};

// The open modules of R550: memory is looked up by the host's PID.
class UsageR550 : public UsageRig {
 protected:
  UsageR550() : UsageRig({"550.163.01", true}) {}
};

TEST_F(UsageR550, InAPrivateNamespaceNothingIsNotBelieved) {
  if (!can_make_pid_namespace()) GTEST_SKIP() << "no PID namespace can be made here";
  auto program = start_in_pid_namespace("4GiB", greedy("init"));
  program->read_until_ready();
  EXPECT_GE(ledger().total_held(key()), kGiB + kContext) << "the context's charge is gone";
  expect_cap_holds(*program);
}

// A client that has this number in a PID namespace of its own.
std::vector<std::string> with_pid_inside(pid_t pid) {
  std::vector<std::string> args = {
      "unshare",           "--pid",    "--fork", "sh", "-c", "\"$@\"; exit $?", "sh", TEST_WITH_PID,
      std::to_string(pid), TEST_CLIENT};
  for (const std::string& word : words("init retain alloc 1GiB alloc 30GiB wait")) {
    args.push_back(word);
  }
  return args;
}

TEST_F(UsageR550, InAPrivateNamespaceAStrangersMemoryIsNotBelieved) {
  if (!can_make_pid_namespace()) GTEST_SKIP() << "no PID namespace can be made here";
  // The stranger has on the host the number that the process has inside.
  auto stranger = start_client("8GiB", words("init retain alloc 3GiB wait"), abroad());
  stranger->read_until_ready();
  Program program(with_pid_inside(stranger->pid()), capped("4GiB"));
  if (program.read_until_ready().empty()) GTEST_SKIP() << "no process may be given a PID here";
  EXPECT_EQ(only_process().pid, stranger->pid());
  EXPECT_EQ(ledger().total_held(key()), kGiB + kEstimatedContext);
}

TEST_F(UsageR550, AThreadThatIsListedWithNothingIsNotBelieved) {
  auto program = start_client("4GiB", greedy("initbeside"));
  program->read_until_ready();
  EXPECT_NE(only_process().tid, program->pid());
  EXPECT_GE(ledger().total_held(key()), kGiB + kContext);
  expect_cap_holds(*program);
}

TEST_F(UsageR550, TheFirstThreadOnTheHostIsBelieved) {
  auto program = start_client("4GiB", words("init retain alloc 1GiB module alloc 30GiB wait"));
  program->read_until_ready();
  expect_books_agree(program->pid(), "by its own PID");
}

TEST_F(UsageR550, StatusSaysThatTheAmountIsNotKnown) {
  auto program = start_client("4GiB", words("initbeside retain alloc 1GiB wait"));
  program->read_until_ready();
  const std::string said = status();
  EXPECT_NE(said.find("\"outsiders\": []"), std::string::npos)
      << "the thread was taken for a stranger: " << said;
  EXPECT_NE(said.find("\"driver_bytes\": null"), std::string::npos) << said;
}

// The closed modules: host PIDs, whatever the version.
class UsageClosed : public UsageRig {
 protected:
  UsageClosed() : UsageRig({"580.65.06", false}) {}
};

TEST_F(UsageClosed, InAPrivateNamespaceAHostPidIsNotOurs) {
  if (!can_make_pid_namespace()) GTEST_SKIP() << "no PID namespace can be made here";
  auto stranger = start_client("8GiB", words("init retain alloc 3GiB wait"), abroad());
  stranger->read_until_ready();
  Program program(with_pid_inside(stranger->pid()), capped("4GiB"));
  if (program.read_until_ready().empty()) GTEST_SKIP() << "no process may be given a PID here";
  EXPECT_EQ(only_process().pid, stranger->pid());
  EXPECT_EQ(ledger().total_held(key()), kGiB + kEstimatedContext)
      << "the stranger's memory was believed";
}

TEST_F(UsageClosed, InAPrivateNamespaceTheCapHolds) {
  if (!can_make_pid_namespace()) GTEST_SKIP() << "no PID namespace can be made here";
  auto program = start_in_pid_namespace("4GiB", words("init retain alloc 1GiB alloc 30GiB wait "
                                                      "alloc 30GiB fill 64MiB wait"));
  program->read_until_ready();
  expect_cap_holds(*program);
}

TEST_F(UsageClosed, OnTheHostItIsBelieved) {
  auto program =
      start_client("4GiB", words("initbeside retain alloc 1GiB module alloc 30GiB wait"));
  program->read_until_ready();
  expect_books_agree(program->pid(), "closed modules know no threads");
}

// Threads are listed, with what they have.
class UsageThreads : public UsageRig {
 protected:
  UsageThreads() : UsageRig({"570.124.06", true}) {}
};

TEST_F(UsageThreads, AThreadOfOursIsUs) {
  auto program = start_client(
      "4GiB", words("initbeside retain alloc 1GiB module alloc 30GiB wait endopener module free 0 "
                    "alloc 30GiB wait"));
  program->read_until_ready();
  expect_books_agree(program->pid(), "while the thread lives");
  program->go_on();
  for (const std::string& line : program->read_until_ready()) {
    EXPECT_EQ(field(line, "rc="), line.rfind("alloc", 0) == 0 ? 2 : 0) << line;
  }
  expect_books_agree(program->pid(), "when the thread has ended");
}

TEST_F(UsageThreads, AThreadThatWasNeverSeenTellsNothing) {
  auto program = start_client("4GiB", greedy("initbeside endopener"));
  program->read_until_ready();
  EXPECT_GE(ledger().total_held(key()), kGiB + kContext);
  expect_cap_holds(*program);
}

TEST_F(UsageThreads, ListsAndToolsNameTheProcess) {
  auto program = start_client("4GiB", words("initbeside retain alloc 1GiB wait"));
  program->read_until_ready();
  const Holdings own = {{program->pid(), kGiB + kContext}};
  for (const std::string list : {"ComputeRunningProcesses", "ComputeRunningProcesses_v3"}) {
    EXPECT_EQ(listed(ask("list " + list, capped("4GiB")).out, list), own);
  }
  const std::string said = status();
  EXPECT_NE(said.find("\"outsiders\": []"), std::string::npos) << said;
  EXPECT_NE(said.find("\"driver_bytes\": " + std::to_string(kGiB + kContext)), std::string::npos)
      << said;
}

TEST_F(UsageThreads, ADeadProcesssThreadStillHoldsItsMemory) {
  // The cap is the whole device: what is given out too early is refused by the driver.
  auto survivor = start_client("100%", words("init retain wait alloc 30GiB wait"));
  survivor->read_until_ready();
  auto victim = start_client("100%", words("initbeside retain alloc 30GiB wait"),
                             {{sim::kLingerVariable, "100"}});
  victim->read_until_ready();
  victim->kill(SIGKILL);
  victim->finish();
  survivor->go_on();
  EXPECT_EQ(field(survivor->read_until_ready()[0], "rc="), 0)
      << "given out while the driver still listed it under the thread's number";
}

TEST_F(UsageThreads, NobodysEntryDoesNotKeepTheDeadCharged) {
  auto living =
      start_client("4GiB", words("initbeside endopener retain alloc 1GiB wait"), abroad());
  living->read_until_ready();
  auto victim = start_client("4GiB", words("init retain alloc 3GiB wait"));
  victim->read_until_ready();
  victim->kill(SIGKILL);
  victim->finish();
  // Nobody can tell the entry of a thread that has ended from what the dead one may have left.
  const Outcome next = client("4GiB", words("init retain alloc 3GiB"));
  EXPECT_EQ(field(line_of(next.out, "alloc"), "rc="), 0) << next.err;
}

// All is as it should be but that clients are listed again and again in private namespaces.
class UsageNewest : public UsageRig {
 protected:
  UsageNewest() : UsageRig({"595.45.04", true}) {}
};

TEST_F(UsageNewest, AClientThatIsListedTwiceHasItsMemoryOnce) {
  if (!can_make_pid_namespace()) GTEST_SKIP() << "no PID namespace can be made here";
  auto program =
      start_in_pid_namespace("4GiB", words("init retain alloc 1GiB module alloc 30GiB wait"),
                             {{sim::kClientsVariable, "2"}});
  program->read_until_ready();
  expect_books_agree(only_process().pid, "listed twice");
  const auto inside = [&](const std::string& commands) {
    std::vector<std::string> args = {"nsenter", "--target", std::to_string(only_process().host_pid),
                                     "--pid",   "python3",  TEST_NVML_CLIENT};
    for (const std::string& word : words(commands)) args.push_back(word);
    return run(args, capped("4GiB")).out;
  };
  const Holdings own = {{only_process().pid, node_->tenant_used(0, tenant_)}};
  for (const std::string list : {"ComputeRunningProcesses", "ComputeRunningProcesses_v3"}) {
    EXPECT_EQ(listed(inside("list " + list), list), own);
  }
}

TEST_F(UsageNewest, AReadingThatCannotBeTrueChangesNothing) {
  // Each time that the heap is made smaller the driver is asked.
  auto program = start_client("4GiB",
                              words("init retain alloc 1GiB heap 64MiB wait heap 48MiB wait "
                                    "heap 32MiB fill 64MiB wait heap 16MiB wait heap 8MiB wait"),
                              told_otherwise());
  program->read_until_ready();
  const pid_t pid = program->pid();
  expect_books_agree(pid, "before");
  const uint64_t overhead = ledger().overhead(key(), pid);
  // Nothing, less than it was given, more than the device has.
  for (const char* said : {"0", "100", "99999999"}) {
    say(said);
    program->go_on();
    program->read_until_ready();
    EXPECT_EQ(ledger().overhead(key(), pid), overhead) << said;
    EXPECT_LE(node_->tenant_high_water(0, tenant_), kCap) << said;
  }
  say("");
  program->go_on();
  program->read_until_ready();
  expect_books_agree(pid, "told the truth again");
}

// Clients of MPS are in a list of their own. Where the server has their memory, nothing tells what
// they take, and a 0 is no reading.
class UsageOfMps : public UsageRig {
 protected:
  UsageOfMps() : UsageRig({"595.45.04", true}) {}
};

TEST_F(UsageOfMps, IsReadFromItsList) {
  const Environment mps = {{"FRACGPU_SIM_NVML_MPS", "clients"}};
  auto program = start_client("4GiB", words("init retain alloc 1GiB wait"), mps);
  program->read_until_ready();
  EXPECT_EQ(ledger().total_held(key()), kGiB + kContext);
  expect_books_agree(program->pid(), "of a client of MPS");
  auto greedy_one = start_client("4GiB", greedy("init"), mps);
  greedy_one->read_until_ready();
  expect_cap_holds(*greedy_one);
}

TEST_F(UsageOfMps, IsEstimatedWhereTheServerHasIt) {
  const Environment mps = {{"FRACGPU_SIM_NVML_MPS", "server"}};
  Program neighbour({TEST_CLIENT, "init", "retain", "alloc", "2GiB", "wait"},
                    bare() + other_tenant());
  neighbour.read_until_ready();
  auto program = start_client("4GiB", words("init retain alloc 1GiB wait"), mps);
  program->read_until_ready();
  EXPECT_EQ(ledger().total_held(key()), kGiB + kEstimatedContext);
  auto greedy_one = start_client("4GiB", greedy("init"), mps);
  greedy_one->read_until_ready();
  expect_cap_holds(*greedy_one);
}

// What a client had is charged for as long as the driver lists it.
TEST_F(UsageOfMps, OfTheDeadStaysChargedWhileItIsListed) {
  const Environment mps = {{"FRACGPU_SIM_NVML_MPS", "clients"}, {sim::kLingerVariable, "3600000"}};
  auto gone = start_client("4GiB", words("init retain alloc 3GiB wait"), mps);
  gone->read_until_ready();
  gone->kill(SIGKILL);
  gone->finish();
  const Outcome next = client("4GiB", words("init retain alloc 2GiB"), mps);
  EXPECT_EQ(field(line_of(next.out, "alloc"), "rc="), 2) << next.out << next.err;
  EXPECT_LE(node_->tenant_high_water(0, tenant_), kCap);
}

// NVML's total is more than CUDA's.
class UsageTotals : public NvmlRig {
 protected:
  UsageTotals() : NvmlRig("rtx6000-ada", 256) {}
  std::string status(const std::string& of = "") const {
    return run({TEST_COMMAND, "status", of.empty() ? tenant_ : of, "--json"}, bare()).out;
  }
  std::string total_under(const std::string& limit) const {
    const Outcome outcome = client(limit, words("init total"));
    const std::string line = line_of(outcome.out, "total");
    return line.empty() ? outcome.err : std::to_string(field(line, "bytes="));
  }
};

TEST_F(UsageTotals, APercentageIsOfWhatCudaCanGive) {
  ASSERT_EQ(node_->total(0), 48508 * kMiB);
  EXPECT_EQ(total_under("50%"), std::to_string(24254 * kMiB));
  EXPECT_EQ(total_under("1.0"), std::to_string(48508 * kMiB));
  EXPECT_EQ(total_under("40GiB"), std::to_string(40 * kGiB));
  auto program = start_client("50%", words("init retain wait"));
  program->read_until_ready();
  EXPECT_EQ(ledger().cap(uuid()), 24254 * kMiB);
  EXPECT_EQ(field(line_of(ask("v1", capped("50%")).out, "v1"), "total="), 24254 * kMiB);
  EXPECT_EQ(field(status(), "\"physical_bytes\": "), 48508 * kMiB);
}

TEST_F(UsageTotals, BeforeAnybodyRunsTheReserveIsLeftOut) {
  EXPECT_EQ(field(line_of(ask("v1", capped("50%")).out, "v1"), "total="), 24270 * kMiB);
  EXPECT_EQ(field(line_of(ask("v1", bare()).out, "v1"), "total="), 49140 * kMiB);
  EXPECT_EQ(field(status("--all"), "\"physical_bytes\": "), 48540 * kMiB);
}

TEST_F(UsageTotals, TwoHalvesFitTheDevice) {
  auto one = start_client("50%", words("init retain fill 64MiB wait"));
  auto other = start_client("50%", words("init retain fill 64MiB wait"), abroad());
  one->read_until_ready();
  other->read_until_ready();
  for (const std::string& tenant : {tenant_, Rig::other_tenant()}) {
    EXPECT_GT(node_->tenant_used(0, tenant), 24100 * kMiB) << "one took of the other's half";
  }
}

// NVML tells no total, and counts pinned memory as the device's.
class UsageWithoutFrameBuffer : public NvmlRig {
 protected:
  UsageWithoutFrameBuffer() : NvmlRig("gb10", 256) {}
};

TEST_F(UsageWithoutFrameBuffer, CudaTellsTheTotal) {
  const Outcome half = client("50%", words("init total retain fill 1GiB"));
  EXPECT_EQ(field(line_of(half.out, "total"), "bytes="), 61286 * kMiB) << half.err;
  EXPECT_EQ(field(line_of(half.out, "fill"), "count="), 59) << half.out;
  EXPECT_LE(node_->tenant_high_water(0, tenant_), 61286 * kMiB);
  const Outcome absolute = client("8GiB", words("init total"));
  EXPECT_EQ(field(line_of(absolute.out, "total"), "bytes="), 8 * kGiB);
}

TEST_F(UsageWithoutFrameBuffer, PinnedMemoryIsNotCharged) {
  auto program = start_client("8GiB", words("init retain wait pinned 1GiB alloc 30GiB wait"));
  program->read_until_ready();
  const uint64_t before = ledger().held(key(), program->pid());
  EXPECT_GE(before, kContext);
  program->go_on();
  program->read_until_ready();
  EXPECT_EQ(ledger().held(key(), program->pid()), before);
}

}  // namespace
}  // namespace fracgpu::test
