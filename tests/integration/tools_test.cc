// The real tools, fetched from Debian and unmodified: inside a tenant they show the ledger's
// numbers, and without the library the node's.
#include <algorithm>

#include "tests/integration/nvml_rig.h"
#include "tests/integration/parts.h"

namespace fracgpu::test {
namespace {

// The versions pad the columns of their tables differently.
std::string without_spaces(std::string text) {
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  return text;
}

std::string mib(uint64_t bytes) {
  return std::to_string(bytes / kMiB) + " MiB";
}

class Tool : public NvmlRig {
 protected:
  using NvmlRig::NvmlRig;
  bool fetch(const std::string& part) {
    std::string why;
    const bool have = have_part(part, &where_, &why);
    if (!have) skip_ = part + " cannot be had: " + why;
    return have;
  }
  std::string where_, skip_;
};

class NvidiaSmi : public Tool, public testing::WithParamInterface<const char*> {
 protected:
  NvidiaSmi() : NvidiaSmi("a100-40gb") {}
  explicit NvidiaSmi(const char* profile) : Tool(profile, 256) {}
  void SetUp() override {
    NvmlRig::SetUp();
    if (!IsSkipped() && !fetch(std::string("nvidia-smi-") + GetParam())) GTEST_SKIP() << skip_;
  }
  Outcome smi(const std::string& arguments, const Environment& environment) const {
    std::vector<std::string> args = {where_ + "/run"};
    for (const std::string& word : words(arguments)) args.push_back(word);
    return run(args, environment);
  }
};

TEST_P(NvidiaSmi, ShowsTheLedgersNumbers) {
  auto program = start_client("8GiB", words("init retain alloc 3GiB wait"));
  auto stranger = start_client("8GiB", words("init retain alloc 1GiB wait"), other_tenant());
  program->read_until_ready();
  stranger->read_until_ready();
  const Environment reserve = {{"FRACGPU_SIM_NVML_RESERVED_MIB", "600"}};
  const Environment inside = capped("8GiB") + reserve, outside = bare() + reserve;
  const uint64_t cap = ledger().cap(uuid()), held = ledger().total_held(uuid());
  const uint64_t all = node_->used(0), total = node_->total(0), reserved = 600 * kMiB;
  EXPECT_EQ(held, node_->tenant_used(0, tenant_));

  const std::string query =
      "--query-gpu=memory.total,memory.used,memory.free,memory.reserved --format=csv,noheader";
  EXPECT_EQ(smi(query, inside).out,
            mib(cap) + ", " + mib(held) + ", " + mib(cap - held) + ", 0 MiB\n");
  EXPECT_EQ(smi(query, outside).out, mib(total) + ", " + mib(all) + ", " +
                                         mib(total - all - reserved) + ", " + mib(reserved) + "\n");

  const Outcome table = smi("", inside);
  EXPECT_EQ(table.status, 0);
  EXPECT_NE(without_spaces(table.out).find("|3328MiB/8192MiB|"), std::string::npos) << table.out;
  EXPECT_NE(without_spaces(smi("", outside).out).find("MiB/40960MiB|"), std::string::npos);

  const std::string memory = without_spaces(smi("-q -d MEMORY", inside).out);
  EXPECT_NE(
      memory.find("FBMemoryUsage\nTotal:8192MiB\nReserved:0MiB\nUsed:3328MiB\nFree:4864MiB\n"),
      std::string::npos)
      << memory;
  const std::string real = without_spaces(smi("-q -d MEMORY", outside).out);
  EXPECT_NE(real.find("FBMemoryUsage\nTotal:40960MiB\nReserved:600MiB\nUsed:" +
                      std::to_string(all / kMiB) + "MiB\n"),
            std::string::npos)
      << real;
  const auto after_fb = [](const std::string& text) { return text.substr(text.find("BAR1")); };
  EXPECT_EQ(after_fb(memory), after_fb(real)) << "the aperture is none of the cap's business";
}

// What comes from the private table, and what is not memory, is the same with and without.
TEST_P(NvidiaSmi, TheRestIsLeftAlone) {
  auto program = start_client("8GiB", words("init retain alloc 3GiB wait"));
  program->read_until_ready();
  for (const char* arguments :
       {"-L", "--query-compute-apps=pid,used_memory,process_name --format=csv", "pmon -c 1",
        "--query-gpu=name,uuid,pci.bus_id,driver_version,utilization.memory --format=csv"}) {
    const Outcome with = smi(arguments, capped("8GiB")), without = smi(arguments, bare());
    EXPECT_EQ(with.out, without.out) << arguments;
    EXPECT_EQ(with.status, without.status) << arguments;
    EXPECT_FALSE(with.out.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Versions, NvidiaSmi, testing::Values("535", "550"));

class NvidiaSmiMig : public NvidiaSmi {
 protected:
  NvidiaSmiMig() : NvidiaSmi("h100-80gb-mig") {}
};

TEST_P(NvidiaSmiMig, ShowsEveryInstancesCap) {
  const std::string limit = "8GiB," + uuid(3) + "=4GiB";
  auto program = start_client(limit, words("init retain alloc 3GiB wait"),
                              {{"CUDA_VISIBLE_DEVICES", uuid(3)}});
  program->read_until_ready();
  const std::string table = without_spaces(smi("", capped(limit)).out);
  EXPECT_NE(table.find("|3328MiB/28672MiB|"), std::string::npos) << "the GPU: " << table;
  for (const char* row : {"|02"
                          "00|0MiB/8192MiB|",
                          "|03"
                          "01|0MiB/8192MiB|",
                          "|09"
                          "02|3328MiB/4096MiB|",
                          "|010"
                          "03|0MiB/8192MiB|"}) {
    EXPECT_NE(table.find(row), std::string::npos) << row << "\n" << table;
  }
  const std::string list = smi("-L", capped(limit)).out;
  EXPECT_EQ(list, smi("-L", bare()).out) << "names and UUIDs are never altered";
  EXPECT_NE(list.find(uuid(4)), std::string::npos) << list;
}

INSTANTIATE_TEST_SUITE_P(Versions, NvidiaSmiMig, testing::Values("535", "550"));

// Without the library: the tool judges the simulated driver's instances as they come and go.
class NvidiaSmiMakesInstances : public NvidiaSmi {
 protected:
  NvidiaSmiMakesInstances() : NvidiaSmi("h100-80gb-mig-empty") {}
  Outcome mig(const std::string& arguments, const char* root = "1") const {
    return smi("mig " + arguments, bare() + Environment{{"FRACGPU_SIM_NVML_ROOT", root}});
  }
};

TEST_P(NvidiaSmiMakesInstances, FromProfilesToNothing) {
  const auto expect = [&](const char* arguments, const std::vector<const char*>& parts) {
    const std::string shown = without_spaces(mig(arguments).out);
    for (const char* part : parts)
      EXPECT_NE(shown.find(part), std::string::npos) << arguments << ": " << part << "\n" << shown;
  };
  expect("-lgip", {"MIG1g.10gb197/79.75No1610|", "MIG1g.10gb+me201/19.75No1610|",
                   "MIG1g.20gb154/419.62No2610|", "MIG2g.20gb143/319.62No3220|",
                   "MIG3g.40gb92/239.50No6030|", "MIG4g.40gb51/139.50No6440|",
                   "MIG7g.80gb01/179.25No13270|"});
  expect("-lgipp", {"ProfileID19Placements:{0,1,2,3,4,5,6}:1", "ProfileID9Placements:{0,4}:4",
                    "ProfileID0Placement:{0}:8"});
  EXPECT_NE(mig("-cgi 9", "0").status, 0);
  const Outcome made = mig("-cgi 9,14,19,19 -C");
  EXPECT_EQ(made.status, 0) << made.out;
  EXPECT_NE(mig("-cgi 9").out.find("Insufficient Resources"), std::string::npos);
  expect("-lgi", {"MIG3g.40gb924:4", "MIG2g.20gb1430:2", "MIG1g.10gb1992:1", "MIG1g.10gb19103:1"});
  expect("-lci", {"02MIG3g.40gb200:3", "03MIG2g.20gb100:2", "010MIG1g.10gb000:1"});
  expect("-lcip", {"02MIG3g.40gb2*0/160", "02MIG1c.3g.40gb00/316"});
  const std::string list = smi("-L", bare()).out;
  EXPECT_NE(list.find("MIG 3g.40gb     Device  0: (UUID: MIG-"), std::string::npos) << list;
  EXPECT_NE(list.find("MIG 1g.10gb     Device  3: (UUID: MIG-"), std::string::npos) << list;
  EXPECT_NE(mig("-dgi").out.find("In use by another client"), std::string::npos);
  EXPECT_EQ(mig("-dci").status, 0);
  EXPECT_EQ(mig("-dgi").status, 0);
  expect("-lgi", {"NoGPUinstancesfound"});
  EXPECT_EQ(smi("-L", bare()).out.find("MIG-"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Versions, NvidiaSmiMakesInstances, testing::Values("535", "550"));

// nvtop has the shim and the simulator preloaded by the loader of its own C library.
class Nvtop : public Tool {
 protected:
  Nvtop() : Tool("a100-40gb", 256) {}
  void SetUp() override {
    NvmlRig::SetUp();
    if (!IsSkipped() && sanitized()) GTEST_SKIP() << "its C library has no sanitizer";
  }
  std::vector<std::string> command() const {
    return with_own_loader(where_, where_ + "/usr/bin/nvtop");
  }
};

TEST_F(Nvtop, ASnapshotSharesTheCap) {
  if (!fetch("nvtop-3.2")) GTEST_SKIP() << skip_;
  auto program = start_client("8GiB", words("init retain alloc 3GiB wait"));
  program->read_until_ready();
  std::vector<std::string> args = command();
  args.push_back("-s");
  const std::string with = run(args, capped("8GiB")).out, without = run(args, bare()).out;
  EXPECT_NE(with.find("\"mem_util\": \"40%\""), std::string::npos) << with;
  EXPECT_NE(without.find("\"mem_util\": \"8%\""), std::string::npos) << without;
}

TEST_F(Nvtop, TheScreenHasTheTenantsProcessesAlone) {
  if (!fetch("nvtop-3.0")) GTEST_SKIP() << skip_;
  auto program = start_client("8GiB", words("init retain alloc 3GiB wait"));
  auto stranger = start_client("8GiB", words("init retain alloc 1GiB wait"), other_tenant());
  program->read_until_ready();
  stranger->read_until_ready();
  const auto screen = [&](const char* until, const Environment& environment) {
    std::vector<std::string> args = {"python3", TEST_UNDER_TERMINAL, until};
    for (const std::string& word : command()) args.push_back(word);
    args.push_back("--no-color");
    const Outcome outcome = run(args, environment);
    EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
    return outcome.out;
  };
  const std::string with = screen("3328MiB  41%", capped("8GiB"));
  EXPECT_EQ(with.find("1280MiB"), std::string::npos) << with;
  const std::string without = screen("3328MiB   8%", bare());
  EXPECT_NE(without.find("1280MiB   3%"), std::string::npos) << "the stranger: " << without;
}

}  // namespace
}  // namespace fracgpu::test
