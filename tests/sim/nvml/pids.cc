// Translates PIDs as the kernel driver does: into the caller's PID namespace, where processes
// outside of it are not visible at all, or not at all (driver_facts.cc).
#include "sim/nvml/pids.h"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace sim {
namespace {

uint64_t inode_of(int fd) {
  struct stat about {};
  return fstat(fd, &about) == 0 ? about.st_ino : 0;
}

uint64_t namespace_of(const std::string& proc) {
  struct stat about {};
  return stat((proc + "/ns/pid").c_str(), &about) == 0 ? about.st_ino : 0;
}

uint64_t own_namespace() {
  return namespace_of("/proc/self");
}

// How many namespaces lie between the process and the caller's; -1 if it is not inside.
int depth_below_caller(const std::string& proc) {
  const uint64_t wanted = own_namespace();
  int fd = open((proc + "/ns/pid").c_str(), O_RDONLY | O_CLOEXEC);
  int depth = 0;
  while (fd >= 0 && inode_of(fd) != wanted) {
    const int parent = ioctl(fd, NS_GET_PARENT);
    close(fd);
    fd = parent;
    ++depth;
  }
  if (fd < 0) return -1;
  close(fd);
  return depth;
}

// The numbers of a process or thread from the outermost PID namespace inwards; none if it is gone.
std::vector<int> numbers_of(const std::string& status_file) {
  std::ifstream status(status_file);
  std::vector<int> pids;
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("NSpid:", 0) != 0) continue;
    std::istringstream numbers(line.substr(6));
    for (int pid; numbers >> pid;) pids.push_back(pid);
  }
  return pids;
}

}  // namespace

int pid_for_caller(const ProcessInfo& process, const ListRules& rules) {
  if (rules.host_pids) return process.host_pid;
  const int own = rules.thread_pids ? process.tid : process.pid;
  const int host = rules.thread_pids ? process.host_tid : process.host_pid;
  if (process.pid_namespace == own_namespace()) return own;
  // The kernel's record of a PID keeps its numbers after the process (struct pid, pid_vnr).
  if (process.lingering && numbers_of("/proc/self/status").size() == 1) return host;
  const std::string proc = "/proc/" + std::to_string(process.host_pid);
  // A process in a container of its own cannot know its PID farther out: another has that number.
  if (namespace_of(proc) != process.pid_namespace) return 0;
  const int depth = depth_below_caller(proc);
  const std::vector<int> pids = numbers_of("/proc/" + std::to_string(host) + "/status");
  if (depth >= 0 && !pids.empty()) {
    const auto inner = static_cast<size_t>(depth);
    return inner < pids.size() ? pids[pids.size() - 1 - inner] : 0;
  }
  // A thread that is gone has its number still, in the outermost namespace as in any other.
  return depth > 0 && rules.thread_pids ? host : 0;
}

}  // namespace sim
