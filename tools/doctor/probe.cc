// Starts probes and reads their reports; see probe.h.
#include "tools/doctor/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/base/clock.h"
#include "shim/base/environment.h"
#include "shim/config/environment_limits.h"
#include "tools/cli/descriptor.h"
#include "tools/cli/plain_text.h"
#include "tools/cli/text_list.h"

namespace fracgpu::tools {
namespace {

constexpr int kTold = 3;                // the descriptor that the child reports on
constexpr size_t kMostTold = 16 << 20;  // bytes: thousands of GPU processes
constexpr size_t kMostSaid = 4096;
constexpr uint64_t kMercy_ms = 1000;  // for a killed child to end: one in the kernel may not

struct Pipe {
  Pipe() {
    int ends[2] = {-1, -1};
    if (pipe2(ends, O_CLOEXEC) == 0) {
      from = Descriptor(ends[0]);
      into = Descriptor(ends[1]);
    }
  }
  Descriptor from, into;
};

[[noreturn]] void become_probe(const std::string& name, const Changes& changes, const Pipe& told,
                               const Pipe& said, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  setpgid(0, 0);
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  // No end of one pipe may have the number that the other one is moved to.
  const int tell = fcntl(told.into.get(), F_DUPFD_CLOEXEC, 10);
  const int say = fcntl(said.into.get(), F_DUPFD_CLOEXEC, 10);
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  dup2(nothing, STDOUT_FILENO);
  dup2(say, STDERR_FILENO);
  dup2(tell, kTold);
  for (const auto& [variable, value] : changes) {
    value ? setenv(variable.c_str(), value->c_str(), 1) : unsetenv(variable.c_str());
  }
  execl("/proc/self/exe", "fracgpu", "doctor", "--probe", name.c_str(), nullptr);
  _exit(127);
}

// Reads both pipes until they end. False if the deadline passes first.
bool read_both(const Pipe& told, const Pipe& said, uint64_t deadline_ms, std::string& lines,
               std::string& words) {
  pollfd sources[] = {{told.from.get(), POLLIN, 0}, {said.from.get(), POLLIN, 0}};
  std::string* const into[] = {&lines, &words};
  const size_t most[] = {kMostTold, kMostSaid};
  while (sources[0].fd >= 0) {
    const uint64_t now = coarse_now_ms();
    if (now >= deadline_ms) return false;
    if (poll(sources, 2, static_cast<int>(deadline_ms - now)) < 0 && errno != EINTR) return false;
    for (int i = 0; i < 2; ++i) {
      if (sources[i].fd < 0 || sources[i].revents == 0) continue;
      char bytes[65536];
      const ssize_t size = read(sources[i].fd, bytes, sizeof bytes);
      if (size <= 0) {
        sources[i].fd = -1;
      } else if (into[i]->size() < most[i]) {
        into[i]->append(bytes, static_cast<size_t>(size));
      }
    }
  }
  return true;
}

// False if the process does not end.
bool reap(pid_t pid, uint64_t deadline_ms, int& status) {
  for (;;) {
    const pid_t ended = waitpid(pid, &status, WNOHANG);
    if (ended == pid) return true;
    if ((ended < 0 && errno != EINTR) || coarse_now_ms() >= deadline_ms) return false;
    sleep_ms(2);
  }
}

void take_lines(const std::string& lines, ProbeReport& report) {
  for (const std::string_view each : split(lines, '\n')) {
    Json line;
    try {
      line = Json::parse(each);
    } catch (const std::runtime_error&) {
      continue;  // the last line, of a child that was killed
    }
    if (!line.is_object()) continue;
    for (size_t i = 0; i < line.keys().size(); ++i) {
      const std::string& field = line.keys()[i];
      const Json& value = line.items()[i];
      if (field == "step" && value.is_string()) {
        report.step = value.text();
      } else {
        report.told[field] = value;
      }
    }
  }
}

}  // namespace

std::string ProbeReport::trouble() const {
  const std::string where = step.empty() ? "" : " in " + step;
  switch (end) {
    case End::hung:
      return "hung" + where + " and was given up";
    case End::crashed:
      return fmt::format("crashed{} (signal {})", where, status);
    case End::failed:
      return fmt::format("ended{} with status {}", where, status);
    case End::done:
      break;
  }
  return "";
}

ProbeReport run_probe(const std::string& name, const Changes& changes, int deadline_s) {
  ProbeReport report;
  Pipe told, said;
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) become_probe(name, changes, told, said, parent);
  if (pid < 0) {
    report.said = fmt::format("cannot start a process: {}", strerror(errno));
    return report;
  }
  told.into = Descriptor();
  said.into = Descriptor();
  std::string lines, words;
  const uint64_t deadline_ms = coarse_now_ms() + static_cast<uint64_t>(deadline_s) * 1000;
  int status = 0;
  const bool ended =
      read_both(told, said, deadline_ms, lines, words) && reap(pid, deadline_ms, status);
  if (!ended) {
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL);
    reap(pid, coarse_now_ms() + kMercy_ms, status);
  }
  take_lines(lines, report);
  report.said = clean(words.c_str(), words.find('\n'));
  report.end = !ended                                          ? ProbeReport::End::hung
               : WIFSIGNALED(status)                           ? ProbeReport::End::crashed
               : WIFEXITED(status) && WEXITSTATUS(status) == 0 ? ProbeReport::End::done
                                                               : ProbeReport::End::failed;
  report.status = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  return report;
}

std::vector<std::string> limit_variables() {
  std::vector<std::string> names;
  for_each_trusted_variable([&](std::string_view name, const char* value) {
    if (sets_limit(name, value)) names.emplace_back(name);
    return true;
  });
  return names;
}

Changes without_library() {
  const char* const preload = getenv("LD_PRELOAD");
  std::string others;
  for (const std::string_view item : split(preload == nullptr ? "" : preload, ':')) {
    if (item.empty() || item.substr(item.rfind('/') + 1) == kLibrary) continue;
    others += (others.empty() ? "" : ":") + std::string(item);
  }
  Changes changes = {{"LD_PRELOAD", others.empty() ? std::nullopt : std::optional(others)}};
  for (const std::string& name : limit_variables()) changes[name] = std::nullopt;
  return changes;
}

ProbeTeller::ProbeTeller() : fd_(kTold) {
  fcntl(fd_, F_SETFD, FD_CLOEXEC);
}

void ProbeTeller::step(const std::string& what) {
  line({{"step", what}});
}

void ProbeTeller::tell(const std::string& field, const Json& value) {
  line({{field, value}});
}

void ProbeTeller::line(const Json& value) {
  const std::string text = value.dump_ascii(-1) + "\n";
  for (size_t at = 0; at < text.size();) {
    const ssize_t written = write(fd_, text.data() + at, text.size() - at);
    if (written < 0 && errno != EINTR) return;
    if (written > 0) at += static_cast<size_t>(written);
  }
}

}  // namespace fracgpu::tools
