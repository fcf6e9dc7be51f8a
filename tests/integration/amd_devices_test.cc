// Which of the machine's devices a device of AMD's runtime is: in containers that are left some of
// them, where KFD's order is not that of the bus ids, and among 64.
#include <fcntl.h>
#include <unistd.h>

#include "sim/node/container.h"
#include "tests/integration/amd_tools.h"

namespace fracgpu::test {
namespace {

// How a container hides the first of two GPUs, and which runtime is in it.
struct Container {
  const char* name;
  const char* hidden;
  const char* rocr;
};

void PrintTo(const Container& container, std::ostream* out) {
  *out << container.name;
}

class AmdContainer : public AmdTools, public testing::WithParamInterface<Container> {
 protected:
  AmdContainer() : AmdTools("2xtiny-amd") {}

  Environment inside() const {
    return {{sim::kHiddenVariable, GetParam().hidden}, {"FRACGPU_SIM_ROCR", GetParam().rocr}};
  }
  bool forbidden() const { return std::string(GetParam().hidden) == "0"; }
};

TEST_P(AmdContainer, TheSecondGpuIsTheSecondGpu) {
  const std::string limit = key(0) + "=64MiB," + key(1) + "=128MiB";
  auto program =
      start(limit, "init count malloc 90MiB meminfo total 0 props 0 hsainfo 0 wait", inside());
  const auto lines = program->read_until_ready();
  ASSERT_EQ(lines.size(), 7u) << program->finish().err;
  EXPECT_EQ(field(lines[1], "devices="), 1);
  EXPECT_EQ(field(lines[2], "rc="), 0) << program->finish().err;
  EXPECT_EQ(field(lines[3], "total="), 128 * kMiB);
  for (const int line : {4, 5}) EXPECT_EQ(field(lines[line], "bytes="), 128 * kMiB);
  EXPECT_EQ(field(lines[6], "size="), 128 * kMiB);
  expect_books_agree(program->pid(), "the second GPU", 1);
  EXPECT_EQ(node_->used(0), 0u);
  EXPECT_EQ(ledger().total_held(key(0)), 0u);
  program->finish();
}

TEST_P(AmdContainer, ToolsShowTheSecondGpu) {
  // rocm-smi numbers what it can read about, whatever of it can be opened.
  const std::string number = forbidden() ? "0" : "1";
  const std::string limit = number + "=128MiB";
  const Program& program = start_tenant(limit, "40MiB", inside());
  EXPECT_EQ(ledger().cap(key(1)), 128 * kMiB);
  const uint64_t held = ledger().held(key(1), program.pid());
  EXPECT_EQ(held, node_->used_by_pid(1, program.pid()));
  for (const std::vector<std::string>& library :
       {std::vector<std::string>{"amdsmi", "libamd_smi.so.26", "new"},
        {"amdsmi", "libamd_smi.so.24", "old"},
        {"rocmsmi", "librocm_smi64.so.7"}}) {
    const std::string text =
        device_part(smi_client(library, capped(limit) + inside()), forbidden() ? 0 : 1);
    EXPECT_EQ(field(line_of(text, "memory 0"), "total="), 128 * kMiB) << text;
    EXPECT_EQ(static_cast<uint64_t>(field(line_of(text, "memory 0"), "used=")), held) << text;
  }
  const Environment here = watching() + inside();
  const std::string status = run({TEST_FRACGPU, "status", tenant_, "--json"}, here).out;
  EXPECT_NE(status.find(key(1)), std::string::npos) << status;
  EXPECT_EQ(status.find(key(0)), std::string::npos) << status;
  EXPECT_NE(status.find("\"index\": " + number), std::string::npos) << status;
}

INSTANTIATE_TEST_SUITE_P(Ways, AmdContainer,
                         testing::Values(Container{"Cgroup", "0", "7"},
                                         Container{"CgroupRocr56", "0", "5.6"},
                                         Container{"NoRenderNode", "0:render", "7"},
                                         Container{"NoRenderNodeRocr56", "0:render", "5.6"}),
                         [](const auto& info) { return std::string(info.param.name); });

// HIP follows KFD, which has probed the second GPU first; rocm-smi, and so a limit, the bus ids.
class AmdProbeOrder : public AmdTools {
 protected:
  AmdProbeOrder() : AmdTools("2xtiny-amd@reversed") {}
};

TEST_F(AmdProbeOrder, ALimitsNumbersAreThoseOfRocmSmi) {
  const std::string limit = "0=64MiB,1=128MiB";
  auto program = start(limit, "init total 0 total 1 malloc 90MiB wait");
  const auto lines = program->read_until_ready();
  ASSERT_EQ(lines.size(), 4u) << program->finish().err;
  EXPECT_EQ(field(lines[1], "bytes="), 128 * kMiB);
  EXPECT_EQ(field(lines[2], "bytes="), 64 * kMiB);
  EXPECT_EQ(field(lines[3], "rc="), 0);
  expect_books_agree(program->pid(), "HIP's first", 1);
  for (const std::vector<std::string>& library :
       {std::vector<std::string>{"amdsmi", "libamd_smi.so.26", "new"},
        {"rocmsmi", "librocm_smi64.so.7"}}) {
    const std::string text = smi_client(library, capped(limit));
    EXPECT_EQ(field(line_of(device_part(text, 0), "memory 0"), "total="), 64 * kMiB) << text;
    EXPECT_EQ(field(line_of(device_part(text, 1), "memory 0"), "total="), 128 * kMiB) << text;
  }
  const std::string status = run({TEST_FRACGPU, "status", tenant_, "--json"}, watching()).out;
  EXPECT_NE(status.find("\"key\": \"" + key(1) + "\",\n      \"index\": 1"), std::string::npos)
      << status;
}

// The tools know 64 MiB of a device that has 1 GiB; a share is one of what HIP can give.
class AmdApu : public AmdTools {
 protected:
  explicit AmdApu(const std::string& kernel = "") : AmdTools("tiny-apu" + kernel) {}
};

TEST_F(AmdApu, AShareIsOneOfWhatHipCanGive) {
  const Program& program = start_tenant("50%", "300MiB");
  EXPECT_EQ(ledger().cap(key()), 512 * kMiB);
  EXPECT_EQ(held(), node_->used_by_pid(0, program.pid()));
  for (const std::vector<std::string>& library :
       {std::vector<std::string>{"amdsmi", "libamd_smi.so.26", "new"},
        {"rocmsmi", "librocm_smi64.so.7"}}) {
    const std::string text = smi_client(library, capped("50%"));
    for (const char* kind : {"memory 0", "memory 1"}) {
      EXPECT_EQ(field(line_of(text, kind), "total="), 512 * kMiB) << text;
      EXPECT_EQ(static_cast<uint64_t>(field(line_of(text, kind), "used=")), held()) << text;
    }
    EXPECT_EQ(field(line_of(smi_client(library, watching()), "memory 0"), "total="), 64 * kMiB);
  }
}

class AmdApuUnderflow : public AmdApu {
 protected:
  AmdApuUnderflow() : AmdApu("@underflow") {}
};

// Its count has wrapped around by the time that the runtime's memory is measured.
TEST_F(AmdApuUnderflow, ACountAboveTheDeviceIsNoCharge) {
  auto program =
      start("128MiB", "init host 80MiB free 0 malloc 40MiB malloc 40MiB async 1MiB wait");
  auto lines = program->read_until_ready();
  ASSERT_EQ(lines.size(), 6u) << program->finish().err;
  EXPECT_EQ(field(lines[3], "rc="), 0);
  EXPECT_EQ(field(lines[4], "rc="), 0) << program->finish().err;
  uint64_t count = 0;
  ASSERT_TRUE(node_->kfd_count(program->pid(), 0, &count));
  EXPECT_LT(count, 100 * kMiB);
  // What a queue takes is charged by KFD's count alone.
  EXPECT_GE(held() + kMiB / 4, node_->used_by_pid(0, program->pid()));
  EXPECT_LE(held(), 128 * kMiB);
  program->go_on_with(
      "malloc 60MiB freeall malloc 90MiB free 0 host 300MiB free 1 malloc 90MiB wait");
  lines = program->read_until_ready();
  EXPECT_NE(field(lines.front(), "rc="), 0) << "above the cap";
  EXPECT_EQ(field(lines[2], "rc="), 0) << lines[2];
  EXPECT_EQ(field(lines.back(), "rc="), 0) << lines.back();
  ASSERT_TRUE(node_->kfd_count(program->pid(), 0, &count));
  EXPECT_GT(count, 1ull << 62) << "nothing has underflown";
  EXPECT_GE(held() + kMiB / 4, node_->used_by_pid(0, program->pid()));
  program->finish();
  EXPECT_LE(node_->tenant_high_water(0, tenant_), 128 * kMiB);
}

// Eight MI300X, each divided into eight: more than most processes are shown.
class AmdManyDevices : public AmdTools {
 protected:
  AmdManyDevices() : AmdTools("8xmi300x-cpx-nps1") {}

  int rows() const {
    int count = 0;
    for (int dev = 0; dev < node_->device_count(); ++dev) count += ledger().cap(key(dev)) != 0;
    return count;
  }
};

TEST_F(AmdManyDevices, AnyEightThatAreVisibleWork) {
  for (const int first : {0, 24, 56}) {
    std::string visible;
    for (int i = 0; i < 8; ++i) visible += (i > 0 ? "," : "") + std::to_string(first + i);
    std::string commands;
    for (int i = 0; i < 8; ++i) commands += " hsa " + std::to_string(i) + " 40MiB";
    Environment own = {{"ROCR_VISIBLE_DEVICES", visible}, {"FRACGPU_TENANT", tenant_}};
    auto program = start("64MiB", commands + " hsa 0 40MiB wait", own);
    const auto lines = program->read_until_ready();
    ASSERT_EQ(lines.size(), 9u) << program->finish().err;
    for (int i = 0; i < 8; ++i) EXPECT_EQ(field(lines[i], "rc="), 0) << lines[i];
    EXPECT_NE(field(lines[8], "rc="), 0) << "the cap is 64 MiB";
    for (int i = 0; i < 8; ++i) expect_books_agree(program->pid(), "eight", first + i);
    EXPECT_EQ(rows(), 8) << "of devices that are not visible, too";
    program->finish();
    unlink(ledger_path().c_str());
  }
}

TEST_F(AmdManyDevices, WhoSeesAllOfThemMayUseAnyOfThem) {
  auto program = start("64MiB", "hsa 20 40MiB hsa 63 40MiB hsa 63 40MiB wait");
  const auto lines = program->read_until_ready();
  ASSERT_EQ(lines.size(), 3u) << program->finish().err;
  EXPECT_EQ(field(lines[0], "rc="), 0) << lines[0];
  EXPECT_EQ(field(lines[1], "rc="), 0) << lines[1];
  EXPECT_NE(field(lines[2], "rc="), 0) << lines[2];
  for (const int dev : {20, 63}) expect_books_agree(program->pid(), "of all", dev);
  EXPECT_EQ(rows(), 64) << "what the runtime takes of each is charged";
}

// Writes rows of devices into a ledger, as the published layout has them, until `left` are free.
void fill_rows(const std::string& path, uint32_t left) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  for (uint32_t row = 1; row < layout::kMaxDevices - left; ++row) {
    char bytes[sizeof(layout::Device)] = {};
    snprintf(bytes, layout::kNameBytes, "GPU-fill-%u", row);
    char key[layout::kNameBytes];
    memcpy(key, bytes, sizeof key);
    const uint64_t cap = layout::kNoCap, check = layout::check_of(key);
    memcpy(bytes + offsetof(layout::Device, cap), &cap, sizeof cap);
    memcpy(bytes + offsetof(layout::Device, key_check), &check, sizeof check);
    const auto at = static_cast<off_t>(offsetof(layout::Ledger, devices) + row * sizeof bytes);
    ASSERT_EQ(pwrite(fd, bytes, sizeof bytes, at), static_cast<ssize_t>(sizeof bytes));
  }
  close(fd);
}

TEST_F(AmdManyDevices, AFullTableRefusesTheNextDeviceAlone) {
  Environment one = {{"ROCR_VISIBLE_DEVICES", "0"}, {"FRACGPU_TENANT", tenant_}};
  auto first = start("64MiB", "hsa 0 8MiB wait", one);
  ASSERT_EQ(first->read_until_ready().size(), 1u);
  fill_rows(ledger_path(), 1);
  const Outcome outcome =
      hip("64MiB", "hsa 0 8MiB hsa 1 8MiB hsa 2 8MiB hsa 1 8MiB hsa 2 8MiB hsa 0 8MiB");
  for (const int call : {0, 1, 3, 5}) {
    EXPECT_EQ(field(line_of(outcome.out, "hsa", call), "rc="), 0) << call << outcome.err;
  }
  for (const int call : {2, 4}) EXPECT_NE(field(line_of(outcome.out, "hsa", call), "rc="), 0);
  EXPECT_NE(outcome.err.find("no row left for device " + key(2)), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find("GPU allocations are refused"), std::string::npos) << outcome.err;
  first->finish();
}

}  // namespace
}  // namespace fracgpu::test
