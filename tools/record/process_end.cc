// See process_end.h.
#include "tools/record/process_end.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "tools/recording/event.h"

namespace fracgpu::tools {
namespace {

// Fields of /proc/PID/stat, from the third on. The second field, a name, may contain anything.
constexpr int kFlags = 9, kStartTime = 22, kExitCode = 52;

std::optional<std::string> stat_of(uint32_t pid, bool& is_ours) {
  const std::string folder = fmt::format("/proc/{}", pid);
  const Descriptor file(open((folder + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  char text[4096];
  const ssize_t size = file.get() < 0 ? -1 : read(file.get(), text, sizeof text);
  if (size <= 0) return {};
  struct stat owner = {};
  is_ours = fstat(file.get(), &owner) == 0 && (geteuid() == 0 || owner.st_uid == geteuid());
  std::string fields(text, static_cast<size_t>(size));
  const size_t name_end = fields.rfind(") ");
  if (name_end == fields.npos) return {};
  return fields.substr(name_end + 2);
}

uint64_t field_of(const std::string& fields, int field) {
  size_t at = 0;
  for (int i = 3; i < field && at != fields.npos; ++i) at = fields.find(' ', at + 1);
  return at == fields.npos ? 0 : strtoull(fields.c_str() + at, nullptr, 10);
}

uint64_t end_by(int wait_status) {
  return WIFSIGNALED(wait_status)
             ? recording::kBySignal + static_cast<uint64_t>(WTERMSIG(wait_status))
             : recording::kByExitCall;
}

// From linux/pidfd.h, which not every machine has.
struct PidfdInfo {
  uint64_t mask, cgroup;
  uint32_t pids[3], ids[8];
  int32_t exit_code;
};
static_assert(sizeof(PidfdInfo) == 64);
constexpr uint64_t kExitInfo = 1 << 3;
constexpr unsigned long kGetInfo = _IOWR(0xFF, 11, PidfdInfo);

std::optional<int> status_by_pidfd(int pidfd) {
  PidfdInfo info = {};
  info.mask = kExitInfo;
  if (pidfd < 0 || ioctl(pidfd, kGetInfo, &info) != 0 || (info.mask & kExitInfo) == 0) return {};
  return info.exit_code;
}

// For a process that is not exiting, or whose parent has not waited for it yet. The kernel shows
// other users' exit codes as 0.
std::optional<uint64_t> end_by_proc(uint32_t pid, uint64_t start_time) {
  constexpr uint64_t kExiting = 4;
  bool is_ours = false;
  const std::optional<std::string> fields = stat_of(pid, is_ours);
  if (!fields || field_of(*fields, kStartTime) != start_time) return {};
  if ((field_of(*fields, kFlags) & kExiting) == 0) return recording::kByExec;
  if (!is_ours) return {};
  return end_by(static_cast<int>(field_of(*fields, kExitCode)));
}

}  // namespace

ProcessEnd::ProcessEnd(uint32_t pid, uint64_t start_time) {
  bool ignored = false;
  Descriptor pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  const std::optional<std::string> fields = stat_of(pid, ignored);
  if (!fields || field_of(*fields, kStartTime) != start_time) return;
  pid_ = pid;
  start_time_ = start_time;
  pidfd_ = std::move(pidfd);
}

uint64_t ProcessEnd::how() const {
  if (pid_ == 0) return recording::kNoHandlers;
  // The order matters: its parent may wait for it in between.
  if (const auto end = end_by_proc(pid_, start_time_)) return *end;
  const std::optional<int> status = status_by_pidfd(pidfd_.get());
  return status ? end_by(*status) : recording::kNoHandlers;
}

}  // namespace fracgpu::tools
