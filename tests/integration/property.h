// Random sequences of all allocating calls, from several threads and processes, against the node's
// own accounting: whenever a tenant stands still the ledger equals them for each process (with
// managed memory, which the driver may count or not, it lies between), and at no moment is it above
// its cap.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/integration/rig.h"

namespace fracgpu::test {

// What is run: families of calls of a program (see tests/clients/random).
struct Mix {
  const char* name;
  const char* families;
  int max_mib;  // of one request
  const char* module_mib = "4";
  const char* managed = "";  // FRACGPU_SIM_MANAGED
  bool abroad = false;       // every second process belongs to another tenant
  int phases = 10;

  // The driver, and how a process stands to it.
  NvidiaDriver driver = {nullptr, true};
  bool in_pid_namespace = false;  // each process in one of its own
  bool beside = false;            // it opens the driver from another thread than its first
  int untold_mib = 0;  // what a process may be charged more where the driver tells nothing
};

void PrintTo(const Mix& mix, std::ostream* stream);

class PropertyRig : public Rig, public testing::WithParamInterface<Mix> {
 protected:
  PropertyRig(const std::string& profile, int context_mib, const char* program, int cap_mib)
      : Rig(profile, context_mib), program_(program), cap_mib_(cap_mib) {}
  PropertyRig(const std::string& profile, int context_mib, const NvidiaDriver& driver,
              const char* program, int cap_mib)
      : Rig(profile, context_mib, driver), program_(program), cap_mib_(cap_mib) {}

  // Runs `processes` of them together and compares ledger and node after each phase.
  void run_phases(int processes, int threads, int moves, const Environment& extra = {});

 private:
  // What the ledger may have more for one process than the node, in bytes.
  static uint64_t leeway(uint64_t managed) {
    return managed + static_cast<uint64_t>(GetParam().untold_mib) * kMiB;
  }
  bool is_abroad(size_t number) const { return GetParam().abroad && number % 2 == 1; }
  void expect_totals(const std::string& when, const std::vector<uint64_t>& managed, bool abroad);
  std::unique_ptr<Program> start(size_t number, unsigned seed, int threads, int phases, int moves,
                                 const Environment& extra);
  // `number`: which one of the run it is.
  void expect_equal_soon(Program& program, size_t number, uint64_t managed,
                         const std::string& when);

  const char* program_;
  int cap_mib_;
  std::vector<pid_t> pids_;  // by which the processes know themselves
};

}  // namespace fracgpu::test
