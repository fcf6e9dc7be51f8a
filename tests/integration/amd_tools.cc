// Tenant, stranger and views of a node; see amd_tools.h.
#include "tests/integration/amd_tools.h"

#include <unistd.h>

#include <sstream>

namespace fracgpu::test {

AmdTools::~AmdTools() {
  stranger_.reset();
  if (!stranger_tenant_.empty()) unlink((layout::kFilePrefix + stranger_tenant_).c_str());
}

void AmdTools::start_stranger() {
  stranger_tenant_ = tenant_ + "-stranger";
  stranger_ =
      start("512MiB", "init malloc 40MiB wait",
            {{"FRACGPU_TENANT", stranger_tenant_}, {sim::kTenantVariable, stranger_tenant_}});
  ASSERT_EQ(field(stranger_->read_until_ready().back(), "rc="), 0);
}

Program& AmdTools::start_tenant(const std::string& limit, const std::string& size,
                                const Environment& extra) {
  programs_.push_back(start(limit, "init malloc " + size + " wait", extra));
  EXPECT_EQ(field(programs_.back()->read_until_ready().back(), "rc="), 0);
  return *programs_.back();
}

Environment AmdTools::watching() const {
  return bare() + Environment{{"LD_PRELOAD", TEST_SIM_DIR "/libsimkfd.so"}};
}

Environment AmdTools::uncapped() const {
  Environment environment = capped("");
  environment.erase("FRACGPU_MEMORY_LIMIT");
  return environment;
}

std::string AmdTools::smi_client(const std::vector<std::string>& args,
                                 const Environment& environment) const {
  std::vector<std::string> command = {"python3", TEST_SMI_CLIENT};
  command.insert(command.end(), args.begin(), args.end());
  const Outcome outcome = run(command, environment);
  EXPECT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  return outcome.out + outcome.err;
}

std::string lines_of(const std::string& text, const std::string& word) {
  std::istringstream stream(text);
  std::string result;
  for (std::string line; std::getline(stream, line);) {
    if (line.compare(0, word.size(), word) == 0) result += line + "\n";
  }
  return result;
}

std::string device_part(const std::string& text, int device) {
  const size_t from = text.find("device " + std::to_string(device) + "\n");
  if (from == std::string::npos) return "";
  const size_t to = text.find("\ndevice ", from);
  return text.substr(from, to == std::string::npos ? to : to - from + 1);
}

}  // namespace fracgpu::test
