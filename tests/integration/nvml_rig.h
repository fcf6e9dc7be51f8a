// Tests that ask NVML, through Python's ctypes as monitors do.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/integration/rig.h"

namespace fracgpu::test {

class NvmlRig : public Rig {
 protected:
  using Rig::Rig;
  ~NvmlRig() override;  // removes the other tenant's ledger too
  void SetUp() override;

  // Another tenant's environment, which is capped too.
  Environment other_tenant() const;

  // What nvml_client.py prints for the commands.
  static Outcome ask(const std::string& commands, const Environment& environment);

  // The processes that a list in the client's output shows, and what each holds.
  using Holdings = std::map<pid_t, uint64_t>;
  static Holdings listed(const std::string& text, const std::string& list);

  // By the ledger and by the node's accounting, which must agree.
  Holdings held_by(const std::vector<pid_t>& pids, int device = 0);
  Holdings known_to_node(int device = 0);
};

}  // namespace fracgpu::test
