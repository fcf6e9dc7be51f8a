// What libamd_smi and librocm_smi64 tell a tenant, in every layout that is known and in one that is
// not: totals, use and processes, and the answers to calls that are wrong or lack room.
#include <signal.h>

#include <ostream>

#include "tests/integration/amd_tools.h"
#include "tests/integration/parts.h"

namespace fracgpu::test {
namespace {

// A version of one of the libraries.
struct Version {
  const char* kind;
  const char* file;
  const char* layout;  // of the structs, as the client calls it; null: it has none of its own
};

void PrintTo(const Version& version, std::ostream* out) {
  *out << version.file;
}

const Version kVersions[] = {
    {"amdsmi", "libamd_smi.so.0", "old"},       {"amdsmi", "libamd_smi.so.24", "old"},
    {"amdsmi", "libamd_smi.so.25", "middle"},   {"amdsmi", "libamd_smi.so.26", "new"},
    {"amdsmi", "libamd_smi.so.27", "new"},      {"rocmsmi", "librocm_smi64.so.1", nullptr},
    {"rocmsmi", "librocm_smi64.so.5", nullptr}, {"rocmsmi", "librocm_smi64.so.6", nullptr},
    {"rocmsmi", "librocm_smi64.so.7", nullptr},
};

std::string name_of(const testing::TestParamInfo<Version>& info) {
  std::string name = info.param.file;
  for (char& c : name) {
    if (isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

class SmiLibrary : public AmdTools, public testing::WithParamInterface<Version> {
 protected:
  std::string ask(const Environment& environment, const std::vector<std::string>& more = {},
                  const std::string& folder = "") const {
    std::vector<std::string> args = {GetParam().kind, folder + GetParam().file};
    if (GetParam().layout != nullptr) args.push_back(GetParam().layout);
    args.insert(args.end(), more.begin(), more.end());
    return smi_client(args, environment);
  }
  bool is_amdsmi() const { return GetParam().layout != nullptr; }
};

TEST_P(SmiLibrary, ShowsTheTenantAndNobodyElse) {
  start_stranger();
  const Program& first = start_tenant("256MiB", "100MiB");
  const Program& second = start_tenant("256MiB", "50MiB");
  const uint64_t of_first = ledger().held(key(), first.pid());
  const uint64_t of_second = ledger().held(key(), second.pid());
  ASSERT_EQ(of_first + of_second, held());
  ASSERT_GT(node_->used(0), held()) << "the stranger's come on top";

  const std::string first_pid = "pid=" + std::to_string(first.pid()) + " ";
  const std::string second_pid = "pid=" + std::to_string(second.pid()) + " ";
  const std::string stranger_pid = "pid=" + std::to_string(stranger_->pid()) + " ";
  // By soname and by path.
  for (const char* folder : {"", TEST_SIM_DIR "/"}) {
    const std::string text = ask(capped("256MiB"), {"--pid", std::to_string(first.pid())}, folder);
    for (const char* kind : {"memory 0", "memory 1"}) {
      EXPECT_EQ(field(line_of(text, kind), "total="), 256 * kMiB) << text;
      EXPECT_EQ(field(line_of(text, kind), "used="), held()) << text;
    }
    const std::string compute = lines_of(text, "compute");
    EXPECT_EQ(field(compute.substr(compute.find(first_pid)), "vram="), of_first) << text;
    EXPECT_EQ(field(compute.substr(compute.find(second_pid)), "vram="), of_second) << text;
    EXPECT_EQ(compute.find(stranger_pid), std::string::npos) << text;
    EXPECT_EQ(field(line_of(text, "by_pid"), "vram="), of_first) << text;
    EXPECT_EQ(field(line_of(text, "gpus"), "count="), 1) << text;
    if (!is_amdsmi()) {
      EXPECT_EQ(field(line_of(text, "by_device"), "vram="), of_first) << text;
      continue;
    }
    EXPECT_EQ(field(line_of(text, "vram_usage"), "total="), 256);
    EXPECT_EQ(field(line_of(text, "vram_usage"), "used="), held() / kMiB);
    EXPECT_EQ(field(line_of(text, "vram_info"), "size="), 256) << text;
    EXPECT_EQ(field(line_of(text, "processes"), "count="), 2) << text;
    for (const char* list : {"process ", "group "}) {
      const std::string listed = lines_of(text, list);
      if (listed.empty()) continue;  // grouped by PID: not in every version
      EXPECT_EQ(field(listed.substr(listed.find(first_pid)), "vram="), of_first) << text;
      EXPECT_EQ(field(listed.substr(listed.find(second_pid)), "vram="), of_second) << text;
      EXPECT_EQ(listed.find(stranger_pid), std::string::npos) << text;
    }
    EXPECT_EQ(field(lines_of(text, "process "), "other="), 2 * kMiB) << "what is not the device's";
  }
  // The stranger's own numbers cannot be asked for either.
  const std::string strangers = ask(capped("256MiB"), {"--pid", std::to_string(stranger_->pid())});
  EXPECT_NE(field(line_of(strangers, "by_pid"), "rc="), 0) << strangers;
  EXPECT_EQ(field(line_of(strangers, "by_pid"), "vram="), 0) << strangers;
  EXPECT_NE(field(line_of(strangers, "gpus"), "rc="), 0) << strangers;
}

TEST_P(SmiLibrary, WithoutACapNothingIsChanged) {
  start_stranger();
  const Program& tenant = start_tenant("256MiB", "100MiB");
  const std::vector<std::string> pid = {"--pid", std::to_string(tenant.pid())};
  const std::string plain = ask(watching(), pid);
  EXPECT_EQ(ask(uncapped(), pid), plain);
  EXPECT_EQ(field(line_of(plain, "memory 0"), "total="), 1024 * kMiB);
  EXPECT_EQ(field(line_of(plain, "memory 0"), "used="), node_->used(0));
  const std::string compute = lines_of(plain, "compute");
  EXPECT_NE(compute.find("pid=" + std::to_string(stranger_->pid()) + " "), std::string::npos);
}

TEST_P(SmiLibrary, WrongCallsAndTooLittleRoomAreAnsweredAsByTheLibrary) {
  start_tenant("256MiB", "100MiB");
  start_tenant("256MiB", "50MiB");
  // What the library says where nobody else is, it must say where strangers are left out.
  const std::string alone = lines_of(ask(watching()), "edge");
  ASSERT_NE(alone.find("one rc="), std::string::npos) << alone;
  EXPECT_EQ(lines_of(ask(capped("256MiB")), "edge"), alone);
  start_stranger();
  EXPECT_EQ(lines_of(ask(capped("256MiB")), "edge"), alone);
  EXPECT_NE(lines_of(ask(watching()), "edge"), alone) << "the stranger is in the node's lists";
}

TEST_P(SmiLibrary, BeforeAnyProcessTheTotalIsAlreadyTheCap) {
  start_stranger();
  const std::string text = ask(capped("25%"));
  EXPECT_EQ(field(line_of(text, "memory 0"), "total="), 256 * kMiB) << text;
  EXPECT_EQ(field(line_of(text, "memory 0"), "used="), 0) << text;
  EXPECT_EQ(lines_of(text, "compute"), "") << text;
  EXPECT_EQ(lines_of(text, "process "), "") << text;
  EXPECT_FALSE(ledger().exists()) << "a tool must leave nothing behind";
}

TEST_P(SmiLibrary, InTheTenantOfADeadProcess) {
  Program& tenant = start_tenant("256MiB", "100MiB");
  tenant.kill(SIGKILL);
  tenant.finish();
  const std::string text = ask(capped("128MiB"));
  EXPECT_EQ(field(line_of(text, "memory 0"), "total="), 128 * kMiB) << text;
  EXPECT_EQ(field(line_of(text, "memory 0"), "used="), 0) << text;
  EXPECT_EQ(lines_of(text, "compute"), "") << text;
}

TEST_P(SmiLibrary, ForAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may become another user";
  const Program& tenant = start_tenant("256MiB", "100MiB");
  const std::string text = ask(capped("256MiB"), {"--user", "65534"});
  EXPECT_EQ(field(line_of(text, "memory 0"), "total="), 256 * kMiB) << text;
  EXPECT_EQ(field(line_of(text, "memory 0"), "used="), held()) << text;
  EXPECT_EQ(field(line_of(text, "compute"), "pid="), tenant.pid()) << text;
}

TEST_P(SmiLibrary, AMalformedLimitShowsNothingToHave) {
  const std::string text = ask(capped("8"));
  EXPECT_EQ(field(line_of(text, "memory 0"), "total="), 0) << text;
  EXPECT_NE(text.find("FRACGPU_MEMORY_LIMIT"), std::string::npos) << text;
}

INSTANTIATE_TEST_SUITE_P(Versions, SmiLibrary, testing::ValuesIn(kVersions), name_of);

using SmiLibraryEdgeTest = AmdTools;

TEST_F(SmiLibraryEdgeTest, AnUnknownVersionIsLeftAloneAndSaysSoOnce) {
  start_tenant("256MiB", "100MiB");
  const std::vector<std::string> args = {"amdsmi", "libamd_smi.so.28", "new"};
  const std::string plain = smi_client(args, watching());
  const std::string text = smi_client(args, capped("256MiB"));
  const size_t said = text.find("fracgpu");
  EXPECT_EQ(text.substr(0, plain.size()), plain);
  ASSERT_NE(said, std::string::npos) << text;
  EXPECT_NE(text.find("version 28"), std::string::npos) << text;
  EXPECT_EQ(text.find("fracgpu", said + 1), std::string::npos) << "once: " << text;
}

// libamd_smi of ROCm 6 calls the copy of librocm_smi64 inside it by its public names.
TEST_F(SmiLibraryEdgeTest, TheCopyInsideIsNotTakenForTheOtherLibrary) {
  start_tenant("256MiB", "100MiB");
  for (const bool cap : {false, true}) {
    const Environment environment = cap ? capped("256MiB") : uncapped();
    const std::vector<std::string> alone = {"amdsmi", "libamd_smi.so.0", "old"};
    std::vector<std::string> beside = alone;
    beside.insert(beside.end(), {"--beside", "librocm_smi64.so.7"});
    const std::string text = smi_client(beside, environment);
    EXPECT_EQ(text, smi_client(alone, environment));
    EXPECT_EQ(field(line_of(text, "memory 0"), "total="), (cap ? 256 : 1024) * kMiB) << text;
  }
}

// The real library finds no device on a simulated node, but reads the processes of its kernel
// driver.
TEST_F(SmiLibraryEdgeTest, TheRealLibraryListsTheTenantAlone) {
  std::string where, why;
  if (!have_part("librocm-smi64-5.2.3", &where, &why)) GTEST_SKIP() << why;
  start_stranger();
  const Program& tenant = start_tenant("256MiB", "100MiB");
  const std::vector<std::string> args = {"rocmsmi", where + "/usr/lib/librocm_smi64.so.1"};
  const std::string all = lines_of(smi_client(args, watching()), "compute");
  EXPECT_NE(all.find("pid=" + std::to_string(stranger_->pid()) + " "), std::string::npos) << all;
  EXPECT_EQ(lines_of(smi_client(args, uncapped()), "compute"), all);
  EXPECT_EQ(
      lines_of(smi_client(args, capped("256MiB")), "compute"),
      "compute pid=" + std::to_string(tenant.pid()) + " vram=" + std::to_string(held()) + "\n");
}

TEST_F(SmiLibraryEdgeTest, ADeadProcessesPidInAnotherTenantIsNotTheTenants) {
  const Program& survivor = start_tenant("256MiB", "50MiB");
  Program& victim = start_tenant("256MiB", "50MiB");
  const std::string pid = std::to_string(victim.pid());
  victim.outlast_start_time();
  victim.kill(SIGKILL);
  victim.finish();
  stranger_tenant_ = tenant_ + "-stranger";
  stranger_ = std::make_unique<Program>(
      std::vector<std::string>{TEST_WITH_PID, pid, TEST_HIP_PROGRAM, "init", "malloc", "40MiB",
                               "wait"},
      capped("512MiB") + Environment{{"FRACGPU_TENANT", stranger_tenant_},
                                     {sim::kTenantVariable, stranger_tenant_}});
  if (stranger_->read_until_ready().empty() && stranger_->finish().status == 77) {
    GTEST_SKIP() << "no process may be given a PID here";
  }
  const std::vector<std::string> args = {"amdsmi", "libamd_smi.so.27", "new", "--pid", pid};
  const std::string all = smi_client(args, watching()), own = smi_client(args, capped("256MiB"));
  for (const char* list : {"process ", "group ", "compute "}) {
    EXPECT_NE(lines_of(all, list).find("pid=" + pid + " "), std::string::npos) << all;
    EXPECT_EQ(lines_of(own, list).find("pid=" + pid + " "), std::string::npos) << own;
    EXPECT_EQ(field(lines_of(own, list), "pid="), survivor.pid()) << own;
  }
}

// The partitions of one GPU, under caps of their own.
class SmiPartitions : public AmdTools, public testing::WithParamInterface<const char*> {
 protected:
  SmiPartitions() : AmdTools(std::string("tiny-cpx") + GetParam()) {}
  std::string limit() const { return key(0) + "=128MiB," + key(3) + "=256MiB"; }
};

TEST_P(SmiPartitions, EachHasItsOwnCap) {
  start_tenant(limit(), "100MiB", {{"HIP_VISIBLE_DEVICES", "3"}});
  const uint64_t used = held(3);
  ASSERT_GT(used, 100 * kMiB);
  for (const Version& version : kVersions) {
    std::vector<std::string> args = {version.kind, version.file};
    if (version.layout != nullptr) args.push_back(version.layout);
    const std::string text = smi_client(args, capped(limit()));
    const auto shown = [&](int device, const char* name) {
      return field(line_of(device_part(text, device), "memory 0"), name);
    };
    EXPECT_EQ(shown(0, "total="), 128 * kMiB) << version.file << text;
    EXPECT_EQ(shown(3, "total="), 256 * kMiB) << version.file << text;
    EXPECT_EQ(shown(3, "used="), used) << version.file << text;
    EXPECT_EQ(shown(5, "total="), 1024 * kMiB) << version.file << " not capped: " << text;
  }
}

// A library that knows nothing of partitions does not tell which one it means, unless the kernel
// keeps them apart by function.
TEST_P(SmiPartitions, AreLeftAloneWhereTheLibraryDoesNotTellThemApart) {
  const std::string text = smi_client({"rocmsmi", "librocm_smi64.so.1"},
                                      capped(limit()) + Environment{{"FRACGPU_SIM_ROCM_SMI", "5"}});
  const bool told = std::string(GetParam()) == "-fn";
  EXPECT_EQ(field(line_of(device_part(text, 3), "memory 0"), "total="), (told ? 256 : 1024) * kMiB)
      << text;
  EXPECT_EQ(text.find("does not tell which device") == std::string::npos, told) << text;
}

INSTANTIATE_TEST_SUITE_P(Kernels, SmiPartitions, testing::Values("", "-fn", "-xcp"));

}  // namespace
}  // namespace fracgpu::test
