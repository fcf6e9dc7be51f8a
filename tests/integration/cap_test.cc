// The cap on linear memory: held to the byte by every function and every ABI variant, told
// truthfully, shared between the tenant's processes, and equal to the node's own accounting.
#include "tests/integration/rig.h"

namespace fracgpu::test {
namespace {

using CapTest = Rig;

TEST_F(CapTest, FillsUpToTheCapAndIsThenOutOfMemory) {
  auto program = start_client("8GiB", words("init retain meminfo fill 64MiB meminfo wait freeall "
                                            "meminfo wait"));
  auto lines = program->read_until_ready();
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(field(lines[2], "total="), 8 * kGiB);
  EXPECT_EQ(field(lines[2], "free="), 8 * kGiB - 256 * kMiB) << "the context counts too";
  EXPECT_EQ(field(lines[3], "rc="), 2) << "an ordinary CUDA_ERROR_OUT_OF_MEMORY";
  EXPECT_EQ(field(lines[3], "count="), (8 * 1024 - 256) / 64) << "refused what would have fitted";
  EXPECT_EQ(field(lines[4], "free="), 0);
  EXPECT_EQ(node_->tenant_used(0, tenant_), 8 * kGiB);
  expect_books_agree(program->pid(), "full");
  program->go_on();
  lines = program->read_until_ready();
  EXPECT_EQ(field(lines[1], "free="), 8 * kGiB - 256 * kMiB);
  expect_books_agree(program->pid(), "freed");
  const Outcome outcome = program->finish();
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(node_->tenant_high_water(0, tenant_), 8 * kGiB);
  EXPECT_NE(outcome.err.find("cuMemAlloc refused on " + uuid()), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("asked 64.0 MiB, in use 8.0 GiB of cap 8.0 GiB"), std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.err.find("(cuda_client) holds the most, 8.0 GiB"), std::string::npos)
      << outcome.err;
}

// The line has what the program asked for, and what that takes where it differs; and so has the
// ledger's record, for `explain`.
TEST_F(CapTest, ARefusalSaysWhatWasAskedFor) {
  const std::pair<const char*, const char*> cases[] = {
      {"alloc 64MiB", "asked 64.0 MiB, "},
      {"alloc 33MiB", "asked 33.0 MiB (which takes 34.0 MiB), "},
      {"alloc 32MiB alloc 100", "asked 100 bytes (which takes 2.0 MiB), "},
      {"alloc 18446744073709551615", "asked 16.0 EiB, "},
      {"alloc 9223372036854775809", "asked 8.0 EiB, "},
      {"managed 33MiB", "asked 33.0 MiB (which takes 34.0 MiB), "},
      {"managed 18446744073709551615", "asked 16.0 EiB, "},
      {"pitch 100 512KiB 4", "asked 50.0 MiB (which takes 256.0 MiB), "},
      {"pitch 4294967296 4294967296 4", "asked 16.0 EiB, "},
      {"alloc 4MiB pooled 3MiB", "asked 3.0 MiB (which takes 32.0 MiB), "},
      {"alloc 4MiB pooled 33MiB", "asked 33.0 MiB (which takes 64.0 MiB), "},
      {"pooled 18446744073709551615", "asked 16.0 EiB, "}};
  const std::string cap = std::to_string(256 + 32) + "MiB";
  for (const auto& [commands, said] : cases) {
    const Outcome outcome = client(cap, words(std::string("init retain ") + commands));
    EXPECT_NE(outcome.err.find(said), std::string::npos) << commands << ": " << outcome.err;
  }
  const std::string explained = run({TEST_FRACGPU, "explain", tenant_}, bare()).out;
  EXPECT_NE(explained.find("asked for 16.0 EiB."), std::string::npos) << explained;
  client(cap, words("init retain alloc 4MiB pooled 3MiB"));
  const std::string last = run({TEST_FRACGPU, "explain", tenant_}, bare()).out;
  EXPECT_NE(last.find("asked for 3.0 MiB (which"), std::string::npos) << last;
}

TEST_F(CapTest, TotalMemoryIsTheCap) {
  const Outcome outcome = client("8GiB", words("init total"));
  EXPECT_EQ(field(line_of(outcome.out, "total"), "bytes="), 8 * kGiB) << outcome.out;
  const Outcome whole = client("100%", words("init total"));
  EXPECT_EQ(field(line_of(whole.out, "total"), "bytes="), node_->total(0));
}

TEST_F(CapTest, PercentAndFractionAreOfTheRealDevice) {
  for (const char* limit : {"25%", "0.25"}) {
    const Outcome outcome = client(limit, words("init total"));
    EXPECT_EQ(field(line_of(outcome.out, "total"), "bytes="), node_->total(0) / 4 / 512 * 512);
  }
}

// Each command allocates 24 MiB in another way, under a cap that has room for one of them.
TEST_F(CapTest, EveryWayToAllocateIsCapped) {
  const uint64_t cap = 256 * kMiB + 32 * kMiB;
  for (const char* way : {"alloc 24MiB", "alloc1 24MiB", "managed 24MiB", "pitch 24KiB 1KiB 4"}) {
    const std::string commands =
        std::string("init retain ") + way + " " + way + " wait freeall wait";
    auto program = start_client(std::to_string(cap) + "B", words(commands));
    const auto lines = program->read_until_ready();
    ASSERT_EQ(lines.size(), 4u) << way;
    EXPECT_EQ(field(lines[2], "rc="), 0) << way;
    EXPECT_EQ(field(lines[3], "rc="), 2) << way;
    EXPECT_EQ(field(lines[3], "ptr="), 0) << way << ": the output must be left alone";
    expect_books_agree(program->pid(), way);
    program->go_on();
    program->read_until_ready();
    expect_books_agree(program->pid(), way);
    program->finish();
  }
  EXPECT_LE(node_->tenant_high_water(0, tenant_), cap);
}

TEST_F(CapTest, SmallAllocationsAreChargedAsThePagesTheyShare) {
  std::vector<std::string> commands = words("init retain");
  for (int i = 0; i < 3000; ++i) commands.insert(commands.end(), {"alloc", "1000"});
  for (const char* size : {"4KiB", "100KiB", "1048575", "1MiB", "2MiB", "2097153", "1"}) {
    commands.insert(commands.end(), {"alloc", size});
  }
  commands.push_back("wait");
  for (int i = 0; i < 3000; i += 2) commands.insert(commands.end(), {"free", std::to_string(i)});
  commands.insert(commands.end(), {"wait", "freeall", "wait"});
  auto program = start_client("8GiB", commands);
  for (const char* when : {"allocated", "every other freed", "all freed"}) {
    program->read_until_ready();
    expect_books_agree(program->pid(), when);
    program->go_on();
  }
}

// Of 512 MiB the context takes 256; 128 chunks are left.
TEST_F(CapTest, SmallAllocationsUseUpTheChunksOfAFullCap) {
  const auto filled = [&](const std::string& size, long long count) {
    const Outcome outcome = client("512MiB", words("init retain fill " + size));
    EXPECT_EQ(field(line_of(outcome.out, "fill"), "rc="), 2) << outcome.out;
    EXPECT_EQ(field(line_of(outcome.out, "fill"), "count="), count) << size;
  };
  filled("1MiB", 2 * 128);
  filled("100KiB", 20 * 128);
  filled("1049600", 128);  // the rest of a chunk is too small for another one
  filled("512", 4096 * 128);
  EXPECT_EQ(node_->tenant_high_water(0, tenant_), 512 * kMiB);
}

TEST_F(CapTest, SmallAllocationsUseTheHolesThatOthersLeave) {
  // 6 in each chunk, every other one of which is freed.
  std::vector<std::string> commands = words("init retain fill 300KiB");
  for (int i = 0; i < 6 * 128; i += 2) commands.insert(commands.end(), {"free", std::to_string(i)});
  for (const char* size : {"400KiB", "300KiB", "200KiB"})
    commands.insert(commands.end(), {"fill", size});
  commands.push_back("wait");
  auto program = start_client("512MiB", commands);
  const auto lines = program->read_until_ready();
  const size_t after = lines.size() - 3;
  EXPECT_EQ(field(lines[2], "count="), 6 * 128);
  // Behind the sixth are 248 KiB, which is a hole of its own.
  EXPECT_EQ(field(lines[after], "count="), 0);
  EXPECT_EQ(field(lines[after + 1], "count="), 3 * 128) << "refused what a hole had room for";
  EXPECT_EQ(field(lines[after + 2], "count="), 128);
  expect_books_agree(program->pid(), "filled again");
  program->go_on();
  program->finish();
  EXPECT_EQ(node_->tenant_high_water(0, tenant_), 512 * kMiB);
}

TEST_F(CapTest, PitchChargesWhatTheDriverReallyTook) {
  auto program = start_client("8GiB", words("init retain pitch 1 4096 4 pitch 1000003 777 16 "
                                            "pitch 513 100000 8 wait freeall wait"));
  program->read_until_ready();
  expect_books_agree(program->pid(), "allocated");
  program->go_on();
  program->read_until_ready();
  expect_books_agree(program->pid(), "freed");
}

TEST_F(CapTest, WhatPoolsHoldUnusedIsTrimmedBeforeARefusal) {
  // Room for 256 MiB, half of which the pool keeps when its memory is freed.
  const Outcome outcome =
      client("512MiB", words("init retain pooled 128MiB free 0 meminfo alloc 200MiB meminfo"));
  EXPECT_EQ(field(line_of(outcome.out, "meminfo", 0), "free="), static_cast<long long>(128 * kMiB));
  EXPECT_EQ(field(line_of(outcome.out, "alloc"), "rc="), 0) << outcome.err;
  EXPECT_EQ(field(line_of(outcome.out, "meminfo", 1), "free="), static_cast<long long>(56 * kMiB));
  EXPECT_LE(node_->tenant_high_water(0, tenant_), 512 * kMiB);
}

TEST_F(CapTest, ProcessesShareOneCap) {
  auto first = start_client("8GiB", words("init retain alloc 5GiB wait freeall wait"));
  first->read_until_ready();
  const Outcome second = client("8GiB", words("init retain meminfo alloc 3GiB alloc 2GiB meminfo"));
  EXPECT_EQ(field(line_of(second.out, "meminfo"), "free="), 3 * kGiB - 512 * kMiB);
  EXPECT_EQ(field(line_of(second.out, "alloc"), "rc="), 2);
  EXPECT_EQ(field(line_of(second.out, "alloc", 1), "rc="), 0);
  EXPECT_EQ(field(line_of(second.out, "meminfo", 1), "free="), kGiB - 512 * kMiB);
  EXPECT_NE(second.err.find("pid " + std::to_string(first->pid()) +
                            " (cuda_client) holds the most, 5.3 GiB"),
            std::string::npos)
      << second.err;
  first->go_on();
  first->read_until_ready();
  const Outcome third = client("8GiB", words("init retain alloc 7GiB"));
  EXPECT_EQ(field(line_of(third.out, "alloc"), "rc="), 0);
}

TEST_F(CapTest, TenantsDoNotShareACap) {
  auto first = start_client("8GiB", words("init retain fill 1GiB wait"));
  first->read_until_ready();
  const Environment other = {{"FRACGPU_TENANT", tenant_ + "-other"},
                             {sim::kTenantVariable, tenant_ + "-other"}};
  const Outcome second = client("4GiB", words("init retain fill 1GiB meminfo"), other);
  EXPECT_EQ(field(line_of(second.out, "fill"), "count="), 3);
  EXPECT_EQ(field(line_of(second.out, "meminfo"), "total="), 4 * kGiB);
  EXPECT_LE(node_->tenant_high_water(0, tenant_ + "-other"), 4 * kGiB);
  unlink((ledger_path() + "-other").c_str());
}

TEST_F(CapTest, FreeIsNeverMoreThanIsReallyFree) {
  const Environment neighbour = bare() + Environment{{sim::kTenantVariable, "neighbour"}};
  Program holder({TEST_CLIENT, "init", "retain", "fill", "1GiB", "wait"}, neighbour);
  holder.read_until_ready();
  const uint64_t really_free = node_->free(0);
  const Outcome outcome = client("30GiB", words("init retain meminfo"));
  if (field(line_of(outcome.out, "retain"), "rc=") == 0) {
    EXPECT_LE(field(line_of(outcome.out, "meminfo"), "free="), static_cast<long long>(really_free));
    EXPECT_EQ(field(line_of(outcome.out, "meminfo"), "total="), 30 * kGiB);
  }
}

TEST_F(CapTest, PhysicalExhaustionIsTheDriversOwnErrorAndLeavesNoCharge) {
  const Environment neighbour = bare() + Environment{{sim::kTenantVariable, "neighbour"}};
  Program holder({TEST_CLIENT, "init", "retain", "fill", "1GiB", "wait"}, neighbour);
  holder.read_until_ready();
  auto program = start_client("30GiB", words("init retain fill 512MiB meminfo wait"));
  program->read_until_ready();
  expect_books_agree(program->pid(), "device full, cap not reached");
}

using TwoDevices = Rig;
class CapOnTwoGpusTest : public Rig {
 protected:
  CapOnTwoGpusTest() : Rig("2xa100-40gb", 256) {}
};

TEST_F(CapOnTwoGpusTest, EachDeviceHasItsOwnCap) {
  const Outcome outcome = client("0=2GiB,1=4GiB", words("init device 0 retain fill 128MiB total "
                                                        "device 1 retain fill 128MiB total"));
  EXPECT_EQ(field(line_of(outcome.out, "total", 0), "bytes="), 2 * kGiB) << outcome.out;
  EXPECT_EQ(field(line_of(outcome.out, "total", 1), "bytes="), 4 * kGiB);
  EXPECT_EQ(node_->tenant_high_water(0, tenant_), 2 * kGiB);
  EXPECT_EQ(node_->tenant_high_water(1, tenant_), 4 * kGiB);
}

// A context is charged where it is, though its handle was that of a green one on another device.
TEST_F(CapOnTwoGpusTest, AContextIsNotTakenForAGreenOneThatEnded) {
  Program program({TEST_REPEAT_CLIENT, "aftergreen", "1", "wait"}, capped("2GiB"));
  const auto lines = program.read_until_ready();
  EXPECT_EQ(field(lines.back(), "rc="), 0) << lines.back();
  for (const int device : {0, 1})
    expect_books_agree(program.pid(), device == 0 ? "first" : "second", device);
}

// A driver gives the handle of one that ended to the next, which may be on another device.
TEST_F(CapOnTwoGpusTest, AGreenContextIsNotTakenForOneOfAnotherDevice) {
  Program program({TEST_REPEAT_CLIENT, "green", "0", "alloc", "10", "endgreen", "green", "1",
                   "alloc", "100", "wait"},
                  capped("2GiB"));
  for (const std::string& line : program.read_until_ready()) EXPECT_EQ(field(line, "rc="), 0);
  for (const int device : {0, 1})
    expect_books_agree(program.pid(), device == 0 ? "first" : "second", device);
}

// A green context has no memory of its own. What is allocated while it is current is the primary
// one's, which lives as long as it is retained, by the program or by green ones.
TEST_F(CapOnTwoGpusTest, WhatIsAllocatedInAGreenContextGoesWithThePrimaryOne) {
  Program program({TEST_REPEAT_CLIENT,
                   "green",
                   "1",
                   "alloc",
                   "100",
                   "green",
                   "1",
                   "alloc",
                   "10",
                   "endgreen",
                   "wait",
                   "endgreen",
                   "wait",
                   "green",
                   "0",
                   "alloc",
                   "50",
                   "wait",
                   "reset",
                   "0",
                   "wait"},
                  capped("2GiB"));
  for (const char* const when : {"one of two ended", "both ended", "another device", "its reset"}) {
    for (const std::string& line : program.read_until_ready())
      EXPECT_EQ(field(line, "rc="), 0) << line;
    for (const int device : {0, 1}) expect_books_agree(program.pid(), when, device);
    program.go_on();
  }
}

// The first green context of a device makes the primary one, which takes as much as any other.
TEST_F(CapOnTwoGpusTest, AGreenContextNeedsRoomForThePrimaryOne) {
  Program neighbour({TEST_CLIENT, "init", "device", "1", "retain", "wait"}, capped("500MiB"));
  neighbour.read_until_ready();
  const Outcome outcome = run({TEST_REPEAT_CLIENT, "green", "1"}, capped("500MiB"));
  EXPECT_EQ(field(line_of(outcome.out, "green"), "rc="), 2) << outcome.out;
  EXPECT_LE(node_->tenant_high_water(1, tenant_), 500 * kMiB);
}

TEST_F(CapOnTwoGpusTest, VisibleDevicesChangeNothingAboutWhoIsWho) {
  const Environment second_only = {{"CUDA_VISIBLE_DEVICES", "1"}};
  EXPECT_EQ(field(line_of(client("0=2GiB,1=4GiB", words("init total"), second_only).out, "total"),
                  "bytes="),
            4 * kGiB)
      << "the index is nvidia-smi's, not the CUDA ordinal";
  const std::string by_uuid = uuid(1) + "=3GiB";
  EXPECT_EQ(
      field(line_of(client(by_uuid, words("init total"), second_only).out, "total"), "bytes="),
      3 * kGiB);
  EXPECT_EQ(field(line_of(client(by_uuid, words("init device 0 total")).out, "total"), "bytes="),
            static_cast<long long>(node_->total(0)))
      << "a device that no item covers is not capped";
}

}  // namespace
}  // namespace fracgpu::test
