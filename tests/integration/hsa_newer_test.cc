// What releases of the HSA runtime after ROCm 7.2 have that older ones have not: further ways to
// make queues and to share memory, and IPC handles that stand for a descriptor.
#include <signal.h>

#include "tests/integration/rig.h"

namespace fracgpu::test {
namespace {

constexpr int kOutOfResources = 0x1008;

class HsaNewer : public Rig {
 protected:
  explicit HsaNewer(const std::string& profile = "tiny-amd") : Rig(profile, 1) {}

  std::unique_ptr<Program> start(const std::string& limit, const std::string& commands,
                                 const Environment& extra = {}) const {
    std::vector<std::string> args = {TEST_HSA_PROGRAM};
    for (const std::string& word : words(commands)) args.push_back(word);
    return std::make_unique<Program>(args, capped(limit) + extra);
  }

  static std::string handle_in(const std::string& line) {
    return line.substr(line.find("handle=") + 7);
  }
};

// Each queue takes 20 MiB.
class HsaNewerQueues : public HsaNewer {
 protected:
  HsaNewerQueues() : HsaNewer("tiny-cwsr") {}
};

// Eight blocks with a part of each in use, four of which are exported. The runtime goes on taking
// parts of an exported block, so it keeps as many empty ones as before.
constexpr char kEightBlocks[] =
    "init alloc 1536KiB alloc 1536KiB alloc 1536KiB alloc 1536KiB alloc 1536KiB alloc 1536KiB "
    "alloc 1536KiB alloc 1536KiB ";
constexpr char kFourFreed[] = " free 4 free 5 free 6 free 7 wait";

TEST_F(HsaNewerQueues, SeveralInOneCallAreChargedAsFarAsTheyAreOnTheDevice) {
  auto program = start("70MiB", "init queues 4 wait destroy 0 destroy 1 destroy 2 destroy 3 wait");
  const auto lines = program->read_until_ready();
  ASSERT_EQ(lines.size(), 2u) << program->finish().err;
  EXPECT_EQ(field(lines[1], "rc="), 0);
  EXPECT_EQ(field(lines[1], "count="), 4) << "the last one's area is in host memory";
  EXPECT_GT(node_->used_by_pid(0, program->pid()), 60 * kMiB);
  expect_books_agree(program->pid(), "four queues");
  program->go_on();
  program->read_until_ready();
  expect_books_agree(program->pid(), "none");
  program->finish();
  EXPECT_LE(node_->tenant_high_water(0, tenant_), 70 * kMiB);
}

TEST_F(HsaNewerQueues, CountedOnesAreChargedAndGiveItBack) {
  auto program = start("70MiB",
                       "init counted counted counted counted wait uncount 0 uncount 1 counted wait "
                       "uncount 2 uncount 3 uncount 4 wait");
  auto lines = program->read_until_ready();
  ASSERT_EQ(lines.size(), 5u) << program->finish().err;
  EXPECT_EQ(field(lines[3], "rc="), 0);
  EXPECT_EQ(field(lines[4], "rc="), 0) << "its area is in host memory";
  EXPECT_GT(node_->used_by_pid(0, program->pid()), 60 * kMiB);
  expect_books_agree(program->pid(), "four queues");
  program->go_on();
  lines = program->read_until_ready();
  EXPECT_EQ(field(lines.back(), "rc="), 0);
  expect_books_agree(program->pid(), "three queues");
  program->go_on();
  program->read_until_ready();
  expect_books_agree(program->pid(), "none");
  program->finish();
  EXPECT_LE(node_->tenant_high_water(0, tenant_), 70 * kMiB);
}

TEST_F(HsaNewerQueues, ThoseThatCopyOnlyNeedLittle) {
  auto program = start("10MiB", "init alloc 6MiB copying copying wait uncopy 1 uncopy 2 wait");
  const auto lines = program->read_until_ready();
  ASSERT_EQ(lines.size(), 4u) << program->finish().err;
  EXPECT_EQ(field(lines[2], "rc="), 0);
  EXPECT_EQ(field(lines[3], "rc="), 0);
  program->go_on();
  program->read_until_ready();
  expect_books_agree(program->pid(), "none");
}

TEST_F(HsaNewer, DescriptorsLeaveTheBlockToTheRuntime) {
  auto program =
      start("64MiB", std::string(kEightBlocks) +
                         "descriptor 0 descriptor 1 descriptor 2 descriptor 3" + kFourFreed);
  program->read_until_ready();
  EXPECT_GE(ledger().held(key(), program->pid()), node_->used_by_pid(0, program->pid()));
  program->finish();
}

TEST_F(HsaNewer, IpcHandlesOfEitherKind) {
  for (const char* kind : {"kernel", "descriptor"}) {
    auto program =
        start("64MiB", std::string(kEightBlocks) + "ipc 0 ipc 1 ipc 2 ipc 3" + kFourFreed,
              {{"FRACGPU_SIM_HSA_IPC", kind}});
    const auto lines = program->read_until_ready();
    ASSERT_GE(lines.size(), 13u) << program->finish().err;
    EXPECT_EQ(field(lines[9], "rc="), 0) << kind;
    EXPECT_GE(ledger().held(key(), program->pid()), node_->used_by_pid(0, program->pid())) << kind;
    program->finish();
  }
}

// The exporter pays, and its tenant after its death. The same handle comes again for memory that
// comes to lie where other memory was.
TEST_F(HsaNewer, IpcHandlesThatRepeat) {
  const Environment newest = {{"FRACGPU_SIM_HSA_IPC", "descriptor"}};
  for (const bool is_abroad : {false, true}) {
    SCOPED_TRACE(is_abroad ? "the importer belongs to another tenant" : "of one tenant");
    auto exporter = start("128MiB", "init alloc 64MiB ipc 0 free 0 alloc 64MiB ipc 1 wait", newest);
    const auto exported = exporter->read_until_ready();
    ASSERT_EQ(exported.size(), 6u) << exporter->finish().err;
    const std::string handle = handle_in(exported.back());
    auto importer = start("128MiB", "init attach " + handle + " 64MiB wait detach 0 wait",
                          newest + (is_abroad ? abroad() : Environment{}));
    const auto lines = importer->read_until_ready();
    ASSERT_EQ(lines.size(), 2u) << importer->finish().err;
    ASSERT_EQ(field(lines[1], "rc="), 0) << lines[1];
    expect_books_agree(exporter->pid(), "exporter");
    exporter->kill(SIGKILL);
    exporter->finish();
    const Outcome refused = start("128MiB", "init alloc 80MiB")->finish();
    EXPECT_EQ(field(line_of(refused.out, "alloc"), "rc="), kOutOfResources) << refused.out;
    importer->go_on();
    importer->read_until_ready();
    const Outcome granted = start("128MiB", "init alloc 80MiB")->finish();
    EXPECT_EQ(field(line_of(granted.out, "alloc"), "rc="), 0) << granted.err;
    importer->finish();
    EXPECT_LE(node_->tenant_high_water(0, tenant_), 128 * kMiB);
  }
}

TEST_F(HsaNewer, AnImportByFabricIsItsExportersToPay) {
  auto exporter = start("128MiB", "init create 64MiB fabric 0 wait");
  const auto exported = exporter->read_until_ready();
  ASSERT_EQ(exported.size(), 3u) << exporter->finish().err;
  auto importer =
      start("128MiB", "init importfabric " + handle_in(exported.back()) + " wait release 0 wait");
  const auto lines = importer->read_until_ready();
  ASSERT_EQ(lines.size(), 2u) << importer->finish().err;
  ASSERT_EQ(field(lines[1], "rc="), 0);
  expect_books_agree(exporter->pid(), "exporter");
  EXPECT_EQ(ledger().held(key(), importer->pid()), node_->used_by_pid(0, importer->pid()));
  exporter->kill(SIGKILL);
  exporter->finish();
  // How much was imported is known when it is mapped; until then the death is what shows it.
  importer->go_on();
  importer->read_until_ready();
  const Outcome granted = start("128MiB", "init alloc 110MiB")->finish();
  EXPECT_EQ(field(line_of(granted.out, "alloc"), "rc="), 0) << granted.err;
  importer->finish();
}

// The same memory opened by its descriptor in its own process, with the size that newer callers
// tell.
TEST_F(HsaNewer, ADescriptorThatIsMappedWithASize) {
  auto program = start("64MiB", "init alloc 20MiB descriptor 0 map 1 unmap 2 free 0 wait");
  const auto lines = program->read_until_ready();
  ASSERT_EQ(lines.size(), 6u) << program->finish().err;
  for (const auto& line : lines) EXPECT_EQ(field(line, "rc="), 0) << line;
  program->finish();
  EXPECT_LE(node_->tenant_high_water(0, tenant_), 64 * kMiB);
}

// A pointer into the middle of memory exports all of it.
TEST_F(HsaNewer, AnExportByAnInteriorPointerIsChargedWhileItIsImported) {
  auto program = start("128MiB",
                       "init alloc 64MiB alloc 4MiB descriptorfrom 0 4194304 map 2 free 0 alloc "
                       "64MiB wait");
  const auto lines = program->read_until_ready();
  ASSERT_EQ(lines.size(), 7u) << program->finish().err;
  for (int i = 0; i < 6; ++i) EXPECT_EQ(field(lines[i], "rc="), 0) << lines[i];
  EXPECT_EQ(field(lines[6], "rc="), kOutOfResources);
  program->finish();
  EXPECT_LE(node_->tenant_high_water(0, tenant_), 128 * kMiB);
}

// What the runtime is charged for by an estimate, where KFD tells nothing, goes with it.
TEST_F(HsaNewer, TheRuntimeMayStartAndEndForEverInAPidNamespace) {
  if (!can_make_pid_namespace()) GTEST_SKIP() << "no PID namespace can be made here";
  std::string commands = "init";
  for (int i = 0; i < 20; ++i) commands += " shutdown init";
  std::vector<std::string> args = {"unshare", "--pid", "--fork", TEST_HSA_PROGRAM};
  for (const std::string& word : words(commands + " alloc 200MiB wait")) args.push_back(word);
  Program program(args, capped("256MiB"));
  const auto lines = program.read_until_ready();
  ASSERT_EQ(lines.size(), 42u) << program.finish().err;
  EXPECT_EQ(field(lines[40], "rc="), 0) << lines[40];
  EXPECT_EQ(field(lines[41], "rc="), 0) << lines[41];
}

// The same of one that is started while another thread ends it: its handles are the same again.
TEST_F(HsaNewer, TheRuntimeIsChargedThatIsStartedWhileItEnds) {
  if (!can_make_pid_namespace()) GTEST_SKIP() << "no PID namespace can be made here";
  Program program(
      {"unshare", "--pid", "--fork", TEST_HSA_PROGRAM, "init", "wait", "restart", "wait"},
      capped("256MiB") + Environment{{"FRACGPU_SIM_DELAY_US", "hsa_init=300000"}});
  program.read_until_ready();
  const uint64_t of_runtime = ledger().total_held(key());
  program.go_on();
  for (const std::string& line : program.read_until_ready())
    EXPECT_EQ(field(line, "rc="), 0) << line;
  EXPECT_GT(of_runtime, 0u);
  EXPECT_EQ(ledger().total_held(key()), of_runtime);
}

// And of one that is started often, where the first device has no cap.
class HsaOnTwo : public HsaNewer {
 protected:
  HsaOnTwo() : HsaNewer("2xtiny-amd") {}
};

TEST_F(HsaOnTwo, TheRuntimeThatIsStartedOftenIsChargedOnce) {
  if (!can_make_pid_namespace()) GTEST_SKIP() << "no PID namespace can be made here";
  Program program({"unshare", "--pid", "--fork", TEST_HSA_PROGRAM, "init", "wait", "init", "init",
                   "init", "wait"},
                  capped("1=256MiB"));
  program.read_until_ready();
  const uint64_t of_runtime = ledger().total_held(key(1));
  EXPECT_GT(of_runtime, 0u);
  program.go_on();
  for (const std::string& line : program.read_until_ready()) EXPECT_EQ(field(line, "rc="), 0);
  EXPECT_EQ(ledger().total_held(key(1)), of_runtime);
}

// Blocks that descriptors were made of count as used no longer once they are freed: else as many
// empty ones would be taken to be kept, where KFD does not tell that they are not.
TEST_F(HsaNewer, ExportedBlocksThatAreFreedAreKeptNoLonger) {
  if (!can_make_pid_namespace()) GTEST_SKIP() << "no PID namespace can be made here";
  std::vector<std::string> args = {"unshare", "--pid", "--fork", TEST_HSA_PROGRAM, "init"};
  const auto each = [&](const std::string& command, int from, int to) {
    for (int i = from; i < to; ++i) {
      args.push_back(command);
      args.push_back(command == "alloc" ? "1536KiB" : std::to_string(i));
    }
  };
  each("alloc", 0, 24);
  each("descriptor", 0, 24);
  each("free", 0, 24);
  each("alloc", 0, 24);
  each("free", 48, 72);
  for (const char* const word : {"alloc", "96MiB", "wait"}) args.emplace_back(word);
  Program program(args, capped("160MiB"));
  const auto lines = program.read_until_ready();
  ASSERT_EQ(lines.size(), 122u) << program.finish().err;
  EXPECT_EQ(field(lines.back(), "rc="), 0) << lines.back();
}

}  // namespace
}  // namespace fracgpu::test
