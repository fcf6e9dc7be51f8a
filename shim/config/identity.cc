// Reads /proc/self for identity.h. Uses plain system calls and fixed buffers, because it runs in
// the constructor of every process of a tenant.
#include "shim/config/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim/base/environment.h"
#include "shim/base/fnv.h"
#include "shim/base/small_file.h"
#include "shim/config/ceiling.h"
#include "shim/config/trusted_file.h"

namespace fracgpu {
namespace {

constexpr char kTenantVariable[] = "FRACGPU_TENANT";
// HAMi-core: the file that processes, and the containers of a pod, use to share a limit.
constexpr char kSharedFileVariable[] = "CUDA_DEVICE_MEMORY_SHARED_CACHE";

// Inodes of the initial namespaces, fixed by the kernel (include/linux/proc_ns.h).
constexpr uint64_t kInitialUts = 4026531838;
constexpr uint64_t kInitialPid = 4026531836;
constexpr uint64_t kInitialCgroup = 4026531835;

// The number in a link of /proc/<pid>/ns, such as "pid:[4026531836]", or 0.
[[gnu::cold]] uint64_t namespace_inode(const char* link) {
  char target[64];
  const ssize_t size = readlink(link, target, sizeof target);
  uint64_t inode = 0;
  for (ssize_t i = 0; i < size; ++i) {
    if (target[i] >= '0' && target[i] <= '9') inode = inode * 10 + target[i] - '0';
  }
  return inode;
}
uint64_t own_pid_namespace() {
  return namespace_inode("/proc/self/ns/pid");
}

// The text of a process's stat file from this field on, or null. The command in field 2 may hold
// spaces and parentheses, so the fields are counted from the last ')'.
using Stat = char[1024];
const char* stat_field(const char* path, int wanted, Stat& stat) {
  if (read_small_file(path, stat, sizeof stat) <= 0) return nullptr;
  const char* at = strrchr(stat, ')');
  for (int field = 2; at != nullptr && field < wanted; ++field) at = strchr(at + 1, ' ');
  return at == nullptr ? nullptr : at + 1;
}

uint64_t start_time_in(const char* path) {
  Stat stat;
  const char* const at = stat_field(path, 22, stat);
  return at == nullptr ? 0 : strtoull(at, nullptr, 10);
}

uint64_t own_start_time() {
  return start_time_in("/proc/self/stat");
}

void name_of_launch_tree(TenantName& name) {
  name.format("tree-{}-{}", getpid(), own_start_time());
}

constexpr char kTenantNames[] =
    "a tenant name; accepted: 1 to 63 letters, digits, '-', '_' or '.', not starting with '.'";
static_assert(layout::kNameBytes == 64);

bool tenant_of_file(TenantName& name, Message& error) {
  TrustedText text;
  if (!read_trusted_file(kTenantFile, text, error)) return false;
  const std::string_view line = text.view().substr(0, text.view().find('\n'));
  name.assign(line);
  if (is_tenant_name(line) && text.size <= line.size() + 1) return true;
  error.format("{}: {} is not {}", kTenantFile, quoted(text.view()).view(), kTenantNames);
  return false;
}

// Named by the file's folder, which launchers mount into each container that shares it, and by the
// file's name. HAMi-core alone makes the file.
bool tenant_of_shared_file(const char* path, TenantName& name, Message& error) {
  const char* const slash = strrchr(path, '/');
  const std::string_view folder = slash == nullptr ? "."
                                  : slash == path  ? "/"
                                                   : std::string_view(path, slash - path);
  struct statx status;  // stat() came with glibc 2.33
  if (statx(AT_FDCWD, Text<4096>(folder).c_str(), 0, STATX_INO, &status) != 0) {
    error.format("{} {} names a file in a folder that is not there; unset it, or make the folder",
                 kSharedFileVariable, quoted(path).view());
    return false;
  }
  name.format("file-{:x}-{:x}-{:x}-{:x}", status.stx_dev_major, status.stx_dev_minor,
              status.stx_ino,
              Fnv1a().mix(std::string_view(slash == nullptr ? path : slash + 1)).value());
  return true;
}

}  // namespace

bool is_tenant_name(std::string_view name) {
  if (name.empty() || name.size() >= layout::kNameBytes || name[0] == '.') return false;
  for (const char c : name) {
    const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '-' || c == '_' || c == '.';
    if (!good) return false;
  }
  return true;
}

bool in_container() {
  return namespace_inode("/proc/self/ns/uts") != kInitialUts ||
         namespace_inode("/proc/self/ns/cgroup") != kInitialCgroup || !in_host_pid_namespace();
}

bool in_host_pid_namespace() {
  return own_pid_namespace() == kInitialPid;
}

bool has_ended(uint32_t pid) {
  Text<32> path;
  path.format("/proc/{}/stat", pid);
  Stat stat;
  const char* const state = stat_field(path.c_str(), 3, stat);
  if (state == nullptr) return true;
  // In a process that is ending, the first thread may be a zombie while others still close files.
  const char* const threads = stat_field(path.c_str(), 20, stat);
  return (*state == 'Z' || *state == 'X') && (threads == nullptr || atoi(threads) <= 1);
}

Ending ending_of(uint32_t pid, uint64_t pid_namespace, uint64_t start_time) {
  Text<32> path;
  const auto started = [&](uint32_t whose) {
    path.format("/proc/{}/stat", whose);
    return start_time_in(path.c_str());
  };
  if (pid_namespace == 0 || pid_namespace != own_pid_namespace() ||
      started(static_cast<uint32_t>(getpid())) != own_start_time()) {
    return Ending::unseen;
  }
  if (started(pid) != start_time || has_ended(pid)) return Ending::done;
  // With address space, the process is alive: it has closed the ledger, or runs another program by
  // now.
  Stat stat;
  const char* const size = stat_field(path.c_str(), 23, stat);
  return size != nullptr && strtoull(size, nullptr, 10) == 0 ? Ending::under_way : Ending::done;
}

uint64_t start_time_on_host(uint32_t host_pid) {
  if (!in_host_pid_namespace()) return 0;
  Text<32> path;
  path.format("/proc/{}/stat", host_pid);
  return start_time_in(path.c_str());
}

ProcessName process_of_own_namespace(uint32_t pid) {
  const uint64_t own = own_pid_namespace();
  if (own == 0) return {};
  return {.host_pid = own == kInitialPid ? pid : 0, .pid = pid, .pid_namespace = own};
}

ProcessName process_of_host(uint32_t pid) {
  return in_host_pid_namespace() ? process_of_own_namespace(pid) : ProcessName{.host_pid = pid};
}

ProcessName process_of_either(uint32_t pid) {
  return {.host_pid = pid, .pid = pid, .pid_namespace = own_pid_namespace()};
}

// Signal 0 is not delivered: the kernel only looks for the thread, and needs no /proc for it.
bool has_thread(uint32_t pid, uint32_t thread) {
  const int before = errno;
  const bool has = syscall(SYS_tgkill, pid, thread, 0) == 0 || errno == EPERM;
  errno = before;
  return has;
}

uint32_t process_of_thread(uint32_t thread) {
  Text<48> path;
  path.format("/proc/{}/status", thread);
  char status[4096];
  if (read_small_file(path.c_str(), status, sizeof status) <= 0) return 0;
  const char* const at = strstr(status, "\nTgid:");
  const uint32_t pid = at == nullptr ? 0 : static_cast<uint32_t>(strtoul(at + 6, nullptr, 10));
  // If /proc was mounted for another namespace, its numbers are not ours.
  return pid != 0 && has_thread(pid, thread) ? pid : 0;
}

ProcessName seen_from_inside(uint32_t pid_here) {
  // If /proc was mounted for another namespace, its numbers are not ours.
  char self[16];
  const ssize_t size = readlink("/proc/self", self, sizeof self - 1);
  if (size <= 0) return {};
  self[size] = '\0';
  if (atoi(self) != getpid()) return {};

  Text<48> path;
  path.format("/proc/{}/status", pid_here);
  char status[4096];
  if (read_small_file(path.c_str(), status, sizeof status) <= 0) return {};
  // "NSpid:" has one number for each namespace from here to the process's own.
  const char* at = strstr(status, "\nNSpid:");
  if (at == nullptr) return {};
  const char* const end = strchrnul(at + 1, '\n');
  const char* last = end;
  while (last > at && *(last - 1) != '\t' && *(last - 1) != ' ') --last;
  path.format("/proc/{}/ns/pid", pid_here);
  const uint64_t inside = namespace_inode(path.c_str());
  if (inside == 0) return {};
  return {.pid = static_cast<uint32_t>(strtoul(last, nullptr, 10)), .pid_namespace = inside};
}

bool tenant_name(TenantName& name, Message& error) {
  if (trusted_file_is_there(kTenantFile)) return tenant_of_file(name, error);
  const char* const given = trusted_environment(kTenantVariable);
  // Under a ceiling a container is one tenant: a second name would be a second cap of that size.
  const bool under_ceiling = trusted_file_is_there(kCeilingFile) && in_container();
  if (given != nullptr && !under_ceiling) {
    if (!is_tenant_name(given)) {
      error.format("{} {} is not {}", kTenantVariable, quoted(given).view(), kTenantNames);
      return false;
    }
    name.assign(given);
    return true;
  }
  const char* const file = under_ceiling ? nullptr : trusted_environment(kSharedFileVariable);
  if (file != nullptr) return tenant_of_shared_file(file, name, error);
  if (in_container()) {
    name.format("container-{}", namespace_inode("/proc/self/ns/mnt"));
  } else {
    name_of_launch_tree(name);
  }
  return true;
}

void export_launch_tree() {
  if (trusted_environment(kTenantVariable) != nullptr ||
      trusted_environment(kSharedFileVariable) != nullptr || in_container()) {
    return;
  }
  TenantName name;
  name_of_launch_tree(name);
  setenv(kTenantVariable, name.c_str(), 0);
}

ProcessIdentity ProcessIdentity::of_self() {
  ProcessIdentity self;
  self.pid = static_cast<uint32_t>(getpid());
  self.pid_namespace = own_pid_namespace();
  self.host_pid = self.pid_namespace == kInitialPid ? self.pid : 0;
  self.start_time = own_start_time();
  self.uid = static_cast<uint32_t>(getuid());
  const ssize_t size = read_small_file("/proc/self/comm", self.command, sizeof self.command);
  if (size > 0 && self.command[size - 1] == '\n') self.command[size - 1] = '\0';
  return self;
}

}  // namespace fracgpu
