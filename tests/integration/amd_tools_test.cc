// The real amd-smi and rocm-smi, unmodified, in a tenant: what they print is what the ledger says,
// to the unit they print; without the library it is what the node says.
#include "tests/integration/amd_tools.h"

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <ostream>

#include "tests/integration/parts.h"

namespace fracgpu::test {
namespace {

namespace fs = std::filesystem;

// A tool as it was fetched, and where it looks for its library, relative to its root; empty: by its
// soname.
struct Tool {
  const char* part;
  const char* script;
  const char* library;
  const char* place;
};

void PrintTo(const Tool& tool, std::ostream* out) {
  *out << tool.part;
}

constexpr char kAmdSmi[] = "usr/libexec/amdsmi_cli/amdsmi_cli.py";
constexpr char kRocmSmi[] = "usr/libexec/rocm_smi/rocm_smi.py";

const Tool kAmdSmi6{"amd-smi-6.1.2", kAmdSmi, "libamd_smi.so.0",
                    "usr/lib/x86_64-linux-gnu/libamd_smi.so"};
const Tool kAmdSmi10{"amd-smi-10.1", kAmdSmi, "libamd_smi.so.27", ""};
const Tool kRocmSmi5{"rocm-smi-5.2.3", kRocmSmi, "librocm_smi64.so.1",
                     "usr/lib/librocm_smi64.so.1"};
const Tool kRocmSmi6{"rocm-smi-6.4.1", kRocmSmi, "librocm_smi64.so.1",
                     "usr/lib/x86_64-linux-gnu/librocm_smi64.so.1"};
const Tool kRocmSmi7{"rocm-smi-7.2.4", kRocmSmi, "librocm_smi64.so.7",
                     "usr/lib/x86_64-linux-gnu/librocm_smi64.so.7"};

// Without spaces, of which the versions print different numbers.
std::string squeezed(std::string text) {
  std::erase_if(text, [](char c) { return c == ' ' || c == '\t'; });
  return text;
}

std::string name_of(const testing::TestParamInfo<Tool>& info) {
  std::string name = info.param.part;
  for (char& c : name) {
    if (isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

class Tools : public AmdTools {
 protected:
  using AmdTools::AmdTools;
  ~Tools() override {
    std::error_code ignored;
    for (const std::string& root : roots_) fs::remove_all(root, ignored);
  }

  // Lays the tool out as its package does, with the simulated library in place of the real one.
  // False, with the reason, when the tool cannot be had.
  bool install(const Tool& tool, std::string* why) {
    std::string where;
    if (!have_part(tool.part, &where, why)) return false;
    char folder[] = "/tmp/fracgpu-tool-XXXXXX";
    EXPECT_NE(mkdtemp(folder), nullptr);
    roots_.push_back(folder);
    tools_[tool.part] = roots_.back();
    const fs::path root = roots_.back(), part = where;
    for (const char* below : {"usr/libexec", "usr/share/amd_smi", "usr/lib/python3"}) {
      if (!fs::exists(part / below)) continue;
      fs::create_directories((root / below).parent_path());
      fs::copy(part / below, root / below, fs::copy_options::recursive);
    }
    if (*tool.place != '\0') {
      fs::create_directories((root / tool.place).parent_path());
      fs::create_symlink(fs::path(TEST_SIM_DIR) / tool.library, root / tool.place);
    }
    return true;
  }

  Outcome run_tool(const Tool& tool, const std::string& arguments,
                   const Environment& environment) const {
    const std::string root = tools_.at(tool.part);
    std::vector<std::string> command = {"python3", "-B", root + "/" + tool.script};
    for (const std::string& word : words(arguments)) command.push_back(word);
    return run(command,
               environment + Environment{{"PYTHONPATH", root + "/usr/lib/python3/dist-packages"}});
  }
  std::string show(const Tool& tool, const std::string& arguments,
                   const Environment& environment) const {
    const Outcome outcome = run_tool(tool, arguments, environment);
    EXPECT_EQ(outcome.status, 0) << tool.part << " " << arguments << outcome.err;
    return squeezed(outcome.out + outcome.err);
  }
  // What amd-smi says of one process, or of nothing: of several, 6.1.2 prints the last alone.
  std::string show_process(const Tool& tool, pid_t pid, const std::string& more,
                           const Environment& environment) const {
    std::string text =
        show(tool, "process --json --pid " + std::to_string(pid) + more, environment);
    std::erase(text, '\n');
    return text;
  }

 private:
  std::vector<std::string> roots_;
  std::map<std::string, std::string> tools_;
};

void expect_has(const std::string& text, const std::string& wanted) {
  EXPECT_NE(text.find(wanted), std::string::npos) << wanted << " is not in\n" << text;
}
void expect_lacks(const std::string& text, const std::string& unwanted) {
  EXPECT_EQ(text.find(unwanted), std::string::npos) << unwanted << " is in\n" << text;
}

std::string mib(uint64_t bytes) {
  return std::to_string(bytes / kMiB);
}
// As amd-smi writes them in JSON, where it leaves bytes as they are.
std::string pid_json(pid_t pid) {
  return "\"pid\":" + std::to_string(pid) + ",";
}
std::string vram_json(uint64_t bytes) {
  return "\"vram_mem\":{\"value\":" + std::to_string(bytes) + ",";
}

class ShowsTenants : public Tools, public testing::WithParamInterface<Tool> {
 protected:
  void SetUp() override {
    AmdTools::SetUp();
    std::string why;
    if (!IsSkipped() && !install(GetParam(), &why)) GTEST_SKIP() << "it cannot be had: " << why;
  }
  std::string show(const std::string& arguments, const Environment& environment) const {
    return Tools::show(GetParam(), arguments, environment);
  }
};

class AmdSmi : public ShowsTenants {
 protected:
  bool is_new() const { return std::string(GetParam().part) == "amd-smi-10.1"; }
};

TEST_P(AmdSmi, ShowsTheTenantsView) {
  start_stranger();
  const Program& tenant = start_tenant("256MiB", "100MiB");
  const struct {
    Environment environment;
    uint64_t total, used;
    bool capped;
  } views[] = {{capped("256MiB"), 256 * kMiB, held(), true},
               {watching(), 1024 * kMiB, node_->used(0), false},
               {uncapped(), 1024 * kMiB, node_->used(0), false}};
  for (const auto& view : views) {
    const std::string total = mib(view.total), used = mib(view.used);
    const std::string usage = show("metric --mem-usage", view.environment);
    expect_has(usage, "TOTAL_VRAM:" + total + "MB\n");
    expect_has(usage, "USED_VRAM:" + used + "MB\n");
    expect_has(usage,
               "FREE_VRAM:" + mib(view.total / kMiB * kMiB - view.used / kMiB * kMiB) + "MB\n");
    expect_has(usage, "TOTAL_VISIBLE_VRAM:" + total + "MB\n");
    expect_has(usage, "USED_VISIBLE_VRAM:" + used + "MB\n");
    expect_has(usage, "TOTAL_GTT:524288MB\n");

    expect_has(show("static --vram", view.environment), "SIZE:" + total + "MB\n");
    const std::string monitor = show("monitor -v", view.environment);
    expect_has(monitor, used + "MB");
    expect_has(monitor, total + "MB");

    const uint64_t bytes =
        view.capped ? ledger().held(key(), tenant.pid()) : node_->used_by_pid(0, tenant.pid());
    const std::string process = show_process(GetParam(), tenant.pid(), "", view.environment);
    expect_has(process, pid_json(tenant.pid()));
    expect_has(process, vram_json(bytes));
    const std::string other = show_process(GetParam(), stranger_->pid(), "", view.environment);
    const std::string stranger = pid_json(stranger_->pid());
    view.capped ? expect_lacks(other, stranger) : expect_has(other, stranger);

    if (!is_new()) continue;
    const std::string table = show("", view.environment);
    expect_has(table, used + "/" + total + "MB|");
    expect_has(table, "|0" + std::to_string(tenant.pid()));
    const std::string row = "|0" + std::to_string(stranger_->pid());
    view.capped ? expect_lacks(table, row) : expect_has(table, row);
    const std::string grouped = show("process --sort-by-pid", view.environment);
    expect_has(grouped, std::to_string(tenant.pid()));
    view.capped ? expect_lacks(grouped, std::to_string(stranger_->pid()))
                : expect_has(grouped, std::to_string(stranger_->pid()));
  }
  EXPECT_EQ(show("list", capped("256MiB")), show("list", watching()))
      << "names and bus ids are never altered";
}

TEST_P(AmdSmi, BeforeAnyProcessAndAfterItsDeath) {
  for (const bool after : {false, true}) {
    if (after) {
      Program& tenant = start_tenant("256MiB", "100MiB");
      tenant.kill(SIGKILL);
      tenant.finish();
    }
    const std::string usage = show("metric --mem-usage", capped("256MiB"));
    expect_has(usage, "TOTAL_VRAM:256MB\n");
    expect_has(usage, "USED_VRAM:0MB\n");
    expect_lacks(show("process", capped("256MiB")), "PID:");
  }
}

INSTANTIATE_TEST_SUITE_P(Versions, AmdSmi, testing::Values(kAmdSmi6, kAmdSmi10), name_of);

class RocmSmi : public ShowsTenants {};

TEST_P(RocmSmi, ShowsTheTenantsView) {
  start_stranger();
  const Program& tenant = start_tenant("256MiB", "100MiB");
  const std::string own = std::to_string(tenant.pid()) + "hip_program1";
  const std::string strangers = std::to_string(stranger_->pid()) + "hip_program1";
  const std::string memory = show("--showmeminfo vram", capped("256MiB"));
  expect_has(memory, "VRAMTotalMemory(B):" + std::to_string(256 * kMiB) + "\n");
  expect_has(memory, "VRAMTotalUsedMemory(B):" + std::to_string(held()) + "\n");
  const std::string processes = show("--showpids", capped("256MiB"));
  expect_has(processes, own + std::to_string(ledger().held(key(), tenant.pid())));
  expect_lacks(processes, strangers);
  for (const Environment& environment : {watching(), uncapped()}) {
    const std::string real = show("--showmeminfo vram", environment);
    expect_has(real, "VRAMTotalMemory(B):" + std::to_string(1024 * kMiB) + "\n");
    expect_has(real, "VRAMTotalUsedMemory(B):" + std::to_string(node_->used(0)) + "\n");
    const std::string all = show("--showpids", environment);
    expect_has(all, own + std::to_string(node_->used_by_pid(0, tenant.pid())));
    expect_has(all, strangers + std::to_string(node_->used_by_pid(0, stranger_->pid())));
  }
}

TEST_P(RocmSmi, BeforeAnyProcessTheTotalIsAlreadyTheCap) {
  const std::string memory = show("--showmeminfo vram", capped("25%"));
  expect_has(memory, "VRAMTotalMemory(B):" + std::to_string(256 * kMiB) + "\n");
  expect_has(memory, "VRAMTotalUsedMemory(B):0\n");
  expect_has(show("--showpids", capped("25%")), "NoKFDPIDscurrentlyrunning");
}

INSTANTIATE_TEST_SUITE_P(Versions, RocmSmi, testing::Values(kRocmSmi5, kRocmSmi6, kRocmSmi7),
                         name_of);

// One instant, one tenant: its program, every tool and the ledger tell the same.
class AmdConsistency : public Tools, public testing::WithParamInterface<const char*> {
 protected:
  AmdConsistency() : Tools(GetParam()) {}
};

TEST_P(AmdConsistency, AllTellTheSame) {
  const int device = node_->device_count() > 1 ? 3 : 0;
  const std::string limit = key(device) + "=384MiB";
  const Environment visible = {{"HIP_VISIBLE_DEVICES", std::to_string(device)}};
  auto other = start(limit, "init malloc 70MiB wait", visible);
  ASSERT_EQ(field(other->read_until_ready().back(), "rc="), 0);
  auto program = start(limit, "init malloc 100MiB meminfo total 0 props 0 wait", visible);
  std::string said;
  for (const std::string& line : program->read_until_ready()) said += line + "\n";
  const uint64_t cap = 384 * kMiB, used = held(device);
  ASSERT_GT(used, 170 * kMiB);
  EXPECT_EQ(used, node_->tenant_used(device, tenant_)) << "and the node's own accounting";
  EXPECT_EQ(field(line_of(said, "meminfo"), "total="), cap) << said;
  EXPECT_EQ(field(line_of(said, "meminfo"), "free="), cap - used) << said;
  EXPECT_EQ(field(line_of(said, "total"), "bytes="), cap) << said;
  EXPECT_EQ(field(line_of(said, "props"), "bytes="), cap) << said;

  const std::string status =
      squeezed(run({TEST_FRACGPU, "status", tenant_, "--json"}, capped(limit)).out);
  expect_has(status, "\"cap_bytes\":" + std::to_string(cap) + ",");
  expect_has(status, "\"physical_bytes\":" + std::to_string(1024 * kMiB) +
                         ",\n\"used_bytes\":" + std::to_string(used) + ",");

  for (const Tool& tool : {kAmdSmi6, kAmdSmi10}) {
    std::string why;
    if (!install(tool, &why)) {
      std::printf("without %s: %s\n", tool.part, why.c_str());
      continue;
    }
    const std::string gpu = "-g " + std::to_string(device);
    const std::string usage = show(tool, "metric --mem-usage " + gpu, capped(limit));
    expect_has(usage, "TOTAL_VRAM:" + mib(cap) + "MB\n");
    expect_has(usage, "USED_VRAM:" + mib(used) + "MB\n");
    expect_has(show(tool, "static --vram " + gpu, capped(limit)), "SIZE:" + mib(cap) + "MB\n");
    for (const pid_t pid : {program->pid(), other->pid()}) {
      const std::string process = show_process(tool, pid, " " + gpu, capped(limit));
      expect_has(process, pid_json(pid));
      expect_has(process, vram_json(ledger().held(key(device), pid)));
    }
  }
  for (const Tool& tool : {kRocmSmi5, kRocmSmi6, kRocmSmi7}) {
    std::string why;
    if (!install(tool, &why)) {
      std::printf("without %s: %s\n", tool.part, why.c_str());
      continue;
    }
    const std::string memory =
        show(tool, "--showmeminfo vram -d " + std::to_string(device), capped(limit));
    expect_has(memory, "VRAMTotalMemory(B):" + std::to_string(cap) + "\n");
    expect_has(memory, "VRAMTotalUsedMemory(B):" + std::to_string(used) + "\n");
  }
}

INSTANTIATE_TEST_SUITE_P(Nodes, AmdConsistency,
                         testing::Values("tiny-amd", "tiny-cpx", "tiny-cpx-fn"));

}  // namespace
}  // namespace fracgpu::test
