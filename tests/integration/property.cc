// Starts the programs of random calls and compares ledger and node; see property.h.
#include "tests/integration/property.h"

#include <chrono>
#include <random>

namespace fracgpu::test {
namespace {

unsigned chosen_seed() {
  const char* given = getenv("FRACGPU_SEED");
  return given != nullptr ? static_cast<unsigned>(atoi(given)) : std::random_device{}();
}

// The driver does not tell how much of the managed bytes it counts: more by at most that is right.
bool agree(uint64_t charged, uint64_t real, uint64_t managed) {
  return charged >= real && charged - real <= managed;
}

}  // namespace

void PrintTo(const Mix& mix, std::ostream* stream) {
  *stream << mix.families;
}

std::unique_ptr<Program> PropertyRig::start(size_t number, unsigned seed, int threads, int phases,
                                            int moves, const Environment& extra) {
  // FRACGPU_FAMILIES and FRACGPU_SEED narrow a failure down, FRACGPU_UNDER is a program to run it
  // under, with arguments.
  const char* under = getenv("FRACGPU_UNDER");
  std::vector<std::string> args;
  if (GetParam().in_pid_namespace) {
    // Under a shell that has ended other programs before, so that each has a PID of its own.
    std::string script;
    for (size_t i = 0; i < number; ++i) script += "/bin/true; ";
    args = {"unshare", "--pid", "--fork", "sh", "-c", script + "\"$@\"; exit $?", "sh"};
  }
  for (const std::string& word : words(under ? under : "")) args.push_back(word);
  args.insert(args.end(),
              {program_, std::to_string(seed), std::to_string(threads), std::to_string(phases),
               std::to_string(moves), std::to_string(GetParam().max_mib)});
  const char* narrowed = getenv("FRACGPU_FAMILIES");
  for (const std::string& family : words(narrowed ? narrowed : GetParam().families)) {
    args.push_back(family);
  }
  const Environment beside = {{"RANDOM_CALLS_BESIDE", "1"}};
  return std::make_unique<Program>(
      args, capped(std::to_string(cap_mib_) + "MiB") +
                (GetParam().beside ? beside : Environment{}) +
                Environment{{"FRACGPU_SIM_MODULE_MIB", GetParam().module_mib},
                            {"FRACGPU_SIM_MANAGED", GetParam().managed},
                            {"RANDOM_CALLS_BOARD", board_path()},
                            {"FRACGPU_LOG", "off"}} +
                extra);
}

void PropertyRig::run_phases(int processes, int threads, int moves, const Environment& extra) {
  const int phases = getenv("FRACGPU_CAMPAIGN") != nullptr ? 100 : GetParam().phases;
  const unsigned first_seed = chosen_seed();
  std::printf("FRACGPU_SEED=%u\n", first_seed);
  std::vector<std::unique_ptr<Program>> programs;
  for (int i = 0; i < processes; ++i) {
    const Environment whose = is_abroad(static_cast<size_t>(i)) ? abroad() : Environment{};
    programs.push_back(start(static_cast<size_t>(i), first_seed + static_cast<unsigned>(i), threads,
                             phases, moves, extra + whose));
  }
  for (auto& program : programs) {
    const std::string line = program->read_line();
    ASSERT_TRUE(line.starts_with("up ")) << line << program->finish().err;
    pids_.push_back(static_cast<pid_t>(field(line, "pid=")));
  }
  for (auto& program : programs) program->go_on();
  long long done = 0, refused = 0;
  std::vector<uint64_t> managed(programs.size());
  for (int phase = 0; phase <= phases; ++phase) {
    const std::string when = "phase " + std::to_string(phase);
    for (size_t i = 0; i < programs.size(); ++i) {
      Program* const program = programs[i].get();
      const std::string line = program->read_line();
      ASSERT_NE(line.find("bad="), std::string::npos) << when << ": " << program->finish().err;
      EXPECT_EQ(line.substr(line.find("bad=")), "bad=") << when;
      managed[i] = static_cast<uint64_t>(field(line, "managed="));
      if (phase == phases) {
        done += field(line, "done=");
        refused += field(line, "refused=");
      }
    }
    for (size_t i = 0; i < programs.size(); ++i) {
      expect_equal_soon(*programs[i], i, managed[i], when);
    }
    expect_totals(when, managed, false);
    if (GetParam().abroad) expect_totals(when, managed, true);
    if (HasFailure()) break;
    for (auto& program : programs) program->go_on();
  }
  for (auto& program : programs) {
    const Outcome outcome = program->finish();
    EXPECT_TRUE(HasFailure() || outcome.status == 0) << outcome.err;
  }
  std::printf("%lld calls, %lld refused, high-water mark %.1f of %d MiB\n", done, refused,
              static_cast<double>(node_->tenant_high_water(0, tenant_)) / 1048576.0, cap_mib_);
}

// Of the tenant, or of the other one.
void PropertyRig::expect_totals(const std::string& when, const std::vector<uint64_t>& managed,
                                bool abroad) {
  // What exporters have freed is charged to the tenant as long as as much is imported, and
  // importers may stay charged for as much that is gone.
  uint64_t more = 2 * node_->imported(0);
  for (size_t i = 0; i < managed.size(); ++i) {
    more += is_abroad(i) == abroad ? leeway(managed[i]) : 0;
  }
  const std::string tenant = abroad ? other_tenant() : tenant_;
  const uint64_t charged = ledger(abroad).total_held(key()), real = node_->tenant_used(0, tenant);
  EXPECT_TRUE(agree(charged, real, more)) << when << ": " << charged << " of " << real;
  EXPECT_LE(node_->tenant_high_water(0, tenant), static_cast<uint64_t>(cap_mib_) * kMiB) << when;
}

// What a call leaves to the driver's report is found when that is read next, which is not at once.
void PropertyRig::expect_equal_soon(Program& program, size_t number, uint64_t managed,
                                    const std::string& when) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  uint64_t charged = 0, real = 0;
  const bool abroad = is_abroad(number);
  const pid_t pid = pids_[number];
  uint64_t more = 0;
  do {
    program.go_on_with("look");
    if (program.read_line() != "looked") break;
    charged = ledger(abroad).held(key(), pid);
    // What is handed on to an importer is charged to the exporter's tenant, and to the importer if
    // that is of another tenant.
    const uint64_t handed_on = node_->handed_on_to_pid(0, pid);
    real = node_->used_by_pid(0, pid) - handed_on;
    // A process that has imported orphans may stay charged for as much that is gone.
    const uint64_t own = std::min(node_->imported(0), ledger(abroad).orphaned(key()));
    more = leeway(managed) + own + (GetParam().abroad ? handed_on : 0);
  } while (!agree(charged, real, more) && std::chrono::steady_clock::now() < end);
  EXPECT_TRUE(agree(charged, real, more)) << when << ": ledger and node differ by "
                                          << static_cast<long long>(charged - real) / 1048576.0
                                          << " MiB, with " << managed / kMiB << " MiB managed";
}

}  // namespace fracgpu::test
