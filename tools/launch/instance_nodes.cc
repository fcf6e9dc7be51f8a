// See instance_nodes.h.
#include "tools/launch/instance_nodes.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/cli/output.h"
#include "tools/machine/capability_nodes.h"

namespace fracgpu::tools {
namespace {

// The nodes show whether it made them. Its output is discarded, because the caller reports failures
// in one line.
void run_nvidia_modprobe(const CapabilityNodes& missing) {
  std::string program = "nvidia-modprobe", option = "-f";
  std::vector<std::string> files;
  for (const CapabilityNode& each : missing) files.push_back(each.file);
  std::vector<char*> arguments = {program.data()};
  for (std::string& file : files) {
    arguments.push_back(option.data());
    arguments.push_back(file.data());
  }
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  if (posix_spawn_file_actions_init(&actions) != 0) return;
  pid_t pid = -1;
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
  }
  if (posix_spawnp(&pid, program.c_str(), &actions, nullptr, arguments.data(), environ) == 0) {
    while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) continue;
  }
  posix_spawn_file_actions_destroy(&actions);
}

}  // namespace

void provide_nodes(const Gpu& instance) {
  const CapabilityNodes before = missing(capability_nodes(*instance.instance));
  if (before.empty()) return;
  run_nvidia_modprobe(before);
  const CapabilityNodes after = missing(before);
  if (after.empty()) return;
  complain(fmt::format("{}; {}", lack_of(instance.label(), after), remedy_for(after)));
}

}  // namespace fracgpu::tools
