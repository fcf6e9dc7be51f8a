// One story: whoever is asked inside a tenant about a device, at one instant, says the same.
//
// Each vendor gives a list of witnesses. All are asked while nothing moves, and each is compared
// with the ledger, to the unit that it prints.
#include <sstream>

#include "tests/integration/nvml_rig.h"
#include "tests/integration/parts.h"

namespace fracgpu::test {
namespace {

struct Witness {
  std::string name;
  uint64_t total, used, free;
  uint64_t unit = 1;    // what it prints in, bytes
  bool rounds = false;  // to the nearest unit, and not down

  uint64_t printed(uint64_t bytes) const { return (bytes + (rounds ? unit / 2 : 0)) / unit; }
};

void expect_one_story(const std::vector<Witness>& witnesses, uint64_t cap, uint64_t held) {
  for (const Witness& witness : witnesses) {
    EXPECT_EQ(witness.total, witness.printed(cap)) << witness.name;
    EXPECT_EQ(witness.used, witness.printed(held)) << witness.name;
    EXPECT_EQ(witness.free, witness.printed(cap - held)) << witness.name;
  }
}

class Consistency : public NvmlRig {
 protected:
  using NvmlRig::NvmlRig;

  // `fracgpu status`, which every vendor's devices are in.
  Witness status() const {
    const std::string text = run({TEST_COMMAND, "status", tenant_, "--json"}, {}).out;
    // What it says of the GPU before is of all tenants, and other tests have theirs on GPUs of the
    // same name.
    const size_t own = text.find("\"tenants\"");
    EXPECT_NE(own, text.npos) << text;
    if (own == text.npos) return {"fracgpu status", 0, 0, 0};
    const uint64_t total = json_number(text, own, "cap_bytes");
    const uint64_t used = json_number(text, own, "used_bytes");
    return {"fracgpu status", total, used, total - used};
  }

 private:
  static uint64_t json_number(const std::string& text, size_t from, const std::string& name) {
    const size_t at = text.find("\"" + name + "\": ", from);
    EXPECT_NE(at, text.npos) << text;
    return at == text.npos ? 0 : std::stoull(text.substr(at + name.size() + 4));
  }
};

class NvidiaConsistency : public Consistency {
 protected:
  NvidiaConsistency() : NvidiaConsistency("a100-40gb", "") {}
  NvidiaConsistency(const char* profile, const char* choose)
      : Consistency(profile, 256), choose_(choose) {}

  // `lines` are what a program of the tenant has printed for "meminfo total".
  std::vector<Witness> witnesses(const std::vector<std::string>& lines, const std::string& limit) {
    std::vector<Witness> all = {status()};
    const std::string& info = lines[lines.size() - 2];
    const auto total = static_cast<uint64_t>(field(info, "total="));
    const auto free = static_cast<uint64_t>(field(info, "free="));
    all.push_back({"cuMemGetInfo", total, total - free, free});
    const auto whole = static_cast<uint64_t>(field(lines.back(), "bytes="));
    all.push_back({"cuDeviceTotalMem", whole, total - free, free});
    const Environment inside =
        capped(limit) + Environment{{"FRACGPU_SIM_NVML_RESERVED_MIB", "600"}};
    const std::string text = ask(choose_ + "v1 v2", inside).out;
    for (const char* version : {"v1", "v2"}) {
      const std::string line = line_of(text, version);
      const auto number = [&](const char* name) {
        return static_cast<uint64_t>(field(line, name));
      };
      all.push_back(
          {std::string("NVML ") + version, number("total="), number("used="), number("free=")});
    }
    const std::string second = line_of(text, "v2");
    EXPECT_EQ(field(second, "total="),
              field(second, "used=") + field(second, "reserved=") + field(second, "free="));
    return all;
  }
  // nvidia-smi's queries are of whole GPUs.
  void add_smi(const char* version, const std::string& limit, std::vector<Witness>& all) {
    std::string where, why;
    if (!have_part(std::string("nvidia-smi-") + version, &where, &why)) {
      std::printf("nvidia-smi %s is not asked: %s\n", version, why.c_str());
      return;
    }
    const std::string text =
        run({where + "/run", "--query-gpu=memory.total,memory.used,memory.free",
             "--format=csv,noheader,nounits"},
            capped(limit))
            .out;
    Witness smi = {std::string("nvidia-smi ") + version, 0, 0, 0, kMiB,
                   std::string(version) != "535"};
    EXPECT_EQ(std::sscanf(text.c_str(), "%lu, %lu, %lu", &smi.total, &smi.used, &smi.free), 3)
        << text;
    all.push_back(smi);
  }

  std::string choose_;  // the device that NVML is asked about
};

TEST_F(NvidiaConsistency, OfSeveralProcesses) {
  // No number is a whole one of MiB but what the driver deals in.
  const std::string limit = "8191.75MiB";
  auto first = start_client(limit, words("init retain alloc 2097153 alloc 1000 alloc 3GiB wait"));
  first->read_until_ready();
  auto last = start_client(limit, words("init retain alloc 300MiB meminfo total wait"));
  std::vector<Witness> all = witnesses(last->read_until_ready(), limit);
  add_smi("535", limit, all);
  add_smi("550", limit, all);
  const uint64_t cap = ledger().cap(uuid()), held = ledger().total_held(uuid());
  EXPECT_EQ(cap, 8192 * kMiB - kMiB / 4);
  EXPECT_EQ(held, node_->tenant_used(0, tenant_));
  expect_one_story(all, cap, held);
}

class MigConsistency : public NvidiaConsistency {
 protected:
  MigConsistency() : NvidiaConsistency("h100-80gb-mig", "instance 2 ") {}
};

TEST_F(MigConsistency, OfAnInstance) {
  const Environment third = {{"CUDA_VISIBLE_DEVICES", uuid(3)}};
  auto program = start_client("50%", words("init retain alloc 3GiB meminfo total wait"), third);
  const std::vector<Witness> all = witnesses(program->read_until_ready(), "50%");
  EXPECT_EQ(ledger().cap(uuid(3)), 4992 * kMiB);
  expect_one_story(all, 4992 * kMiB, node_->tenant_used(3, tenant_));
}

}  // namespace
}  // namespace fracgpu::test
