// Runs the NVML client and reads its lists; see nvml_rig.h.
#include "tests/integration/nvml_rig.h"

#include <unistd.h>

#include <sstream>

namespace fracgpu::test {

NvmlRig::~NvmlRig() {
  unlink((ledger_path() + "-other").c_str());
}

void NvmlRig::SetUp() {
  if (thread_sanitized()) GTEST_SKIP() << "python is not instrumented";
}

Environment NvmlRig::other_tenant() const {
  return {{"FRACGPU_TENANT", tenant_ + "-other"}, {sim::kTenantVariable, tenant_ + "-other"}};
}

Outcome NvmlRig::ask(const std::string& commands, const Environment& environment) {
  std::vector<std::string> args = {"python3", TEST_NVML_CLIENT};
  for (const std::string& word : words(commands)) args.push_back(word);
  return run(args, environment);
}

NvmlRig::Holdings NvmlRig::listed(const std::string& text, const std::string& list) {
  Holdings found;
  std::istringstream stream(text);
  bool inside = false;
  for (std::string line; std::getline(stream, line);) {
    if (line.rfind("  ", 0) != 0) {
      inside = line.rfind(list + " ", 0) == 0;
    } else if (inside) {
      const auto pid = static_cast<pid_t>(field(line, "pid="));
      EXPECT_EQ(found.count(pid), 0) << "twice in " << text;
      found[pid] = static_cast<uint64_t>(field(line, "used="));
    }
  }
  return found;
}

NvmlRig::Holdings NvmlRig::held_by(const std::vector<pid_t>& pids, int device) {
  Holdings found;
  for (const pid_t pid : pids) {
    expect_books_agree(pid, "when listed", device);
    found[pid] = ledger().held(key(device), pid);
  }
  return found;
}

NvmlRig::Holdings NvmlRig::known_to_node(int device) {
  Holdings found;
  for (const sim::ProcessInfo& process : node_->processes()) {
    found[process.pid] = process.device[static_cast<size_t>(device)].total();
  }
  return found;
}

}  // namespace fracgpu::test
