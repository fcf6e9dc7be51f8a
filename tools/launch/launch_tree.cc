// Starts, supervises and outlives a launch tree; see launch_tree.h.
#include "tools/launch/launch_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "shim/base/text.h"
#include "tools/cli/descriptor.h"
#include "tools/cli/text_list.h"

namespace fracgpu::tools {
std::string library_path() {
  std::error_code error;
  const auto here = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const std::string& folder :
       {here.string(), (here / FRACGPU_LIBRARY_FROM_COMMAND).string(), (here / "../lib").string(),
        std::string("/usr/local/lib"), std::string("/usr/lib"), std::string("/usr/lib64")}) {
    auto path = std::filesystem::weakly_canonical(folder + "/" + kLibrary, error).string();
    if (access(path.c_str(), R_OK) != 0) continue;
    if (path.find_first_of(": ") != path.npos) {
      throw std::runtime_error(
          fmt::format("'{}' cannot be preloaded: LD_PRELOAD allows no blank and no colon", path));
    }
    return path;
  }
  throw std::runtime_error(
      fmt::format("{} is neither beside this command nor in /usr/local/lib or /usr/lib", kLibrary));
}

namespace {

// Puts the library before the preloaded libraries, unless it is one of them.
std::string preload() {
  const char* const now = getenv("LD_PRELOAD");
  std::string before = now == nullptr ? "" : now;
  for (const std::string_view item : split(before, ':')) {
    if (item.substr(item.rfind('/') + 1) == kLibrary) return before;
  }
  return library_path() + (before.empty() ? "" : ":" + before);
}

// Signals that this process only passes on, and that must not end it.
sigset_t passed_on() {
  sigset_t set;
  sigfillset(&set);
  for (const int fatal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS}) {
    sigdelset(&set, fatal);
  }
  return set;
}

std::vector<pid_t> children() {
  std::vector<pid_t> pids;
  std::ifstream file("/proc/thread-self/children");
  for (pid_t pid; file >> pid;) pids.push_back(pid);
  return pids;
}

[[noreturn]] void become(const std::vector<std::string>& command, const Changes& changes, int keep,
                         const sigset_t& mask, int failed) {
  if (keep >= 0) fcntl(keep, F_SETFD, 0);
  for (const auto& [name, value] : changes) {
    value ? setenv(name.c_str(), value->c_str(), 1) : unsetenv(name.c_str());
  }
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  execvp(arguments[0], arguments.data());
  const int error = errno;
  [[maybe_unused]] const ssize_t told = write(failed, &error, sizeof error);
  _exit(kNoCommand);
}

// Signals that the kernel sends to a terminal's whole foreground group have already reached the
// command.
void pass_on(const siginfo_t& signal, pid_t command, bool ended) {
  // A broken pipe is this process's own, from a line to stderr.
  if (signal.si_signo == SIGPIPE || (signal.si_code == SI_KERNEL && !ended)) return;
  if (!ended) {
    kill(command, signal.si_signo);
    return;
  }
  for (const pid_t child : children()) kill(child, signal.si_signo);
}

// Reports once why this process stays.
void tell_of_survivors(const std::string& command) {
  std::string list;
  for (const pid_t child : children()) list += fmt::format(" {}", child);
  if (list.empty()) return;
  fmt::print(stderr,
             "fracgpu: {} has ended; its tenant stays until what it left running ends too: PID{}\n",
             fracgpu::quoted(command).view(), list);
}

}  // namespace

std::string find_command(const std::string& command) {
  const auto judge = [](const std::string& path) {
    struct stat status = {};
    if (stat(path.c_str(), &status) != 0) return errno == EACCES ? EACCES : ENOENT;
    if (S_ISDIR(status.st_mode)) return EISDIR;
    return access(path.c_str(), X_OK) == 0 ? 0 : EACCES;
  };
  int worst = ENOENT;
  if (command.find('/') != command.npos) {
    worst = judge(command);
    if (worst == 0) return command;
  } else if (!command.empty()) {
    const char* const path = getenv("PATH");
    for (const std::string_view folder : split(path != nullptr ? path : "/bin:/usr/bin", ':')) {
      std::string file = fmt::format("{}/{}", folder.empty() ? "." : folder, command);
      const int code = judge(file);
      if (code == 0) return file;
      if (code == EACCES) worst = code;
    }
  }
  if (worst == ENOENT)
    throw RunError(kNoCommand, fmt::format("{}: no such command", fracgpu::quoted(command).view()));
  throw RunError(kCannotRun, fmt::format("{} cannot be run: {}", fracgpu::quoted(command).view(),
                                         strerror(worst)));
}

Changes tenant_environment(const std::string& tenant, const std::string& limit,
                           const std::vector<Gpu>& all, const std::vector<Gpu>* visible) {
  Changes changes = {{"LD_PRELOAD", preload()}, {"FRACGPU_TENANT", tenant}};
  if (!limit.empty()) changes["FRACGPU_MEMORY_LIMIT"] = limit;
  if (visible == nullptr) return changes;
  for (const Gpu::Vendor vendor : {Gpu::Vendor::nvidia, Gpu::Vendor::amd}) {
    const auto of_vendor = [vendor](const Gpu& gpu) { return gpu.vendor == vendor; };
    if (std::none_of(all.begin(), all.end(), of_vendor)) continue;
    std::string names, numbers;
    int count = 0;
    for (const Gpu& gpu : *visible) {
      if (!of_vendor(gpu)) continue;
      const char* const comma = count == 0 ? "" : ",";
      names += comma + gpu.visible_name;
      numbers += comma + std::to_string(count++);
    }
    if (vendor == Gpu::Vendor::nvidia) {
      changes["CUDA_VISIBLE_DEVICES"] = names;
      continue;
    }
    changes["ROCR_VISIBLE_DEVICES"] = names;
    // HIP numbers the devices that ROCr shows. It must not take NVIDIA's list, or an older one, for
    // its own.
    changes["HIP_VISIBLE_DEVICES"] = count == 0 ? std::nullopt : std::optional(numbers);
    changes["GPU_DEVICE_ORDINAL"] = std::nullopt;
  }
  return changes;
}

int run_tree(const std::vector<std::string>& command, const Changes& changes, int keep) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
    throw RunError(kRunFailed, fmt::format("cannot start a process: {}", strerror(errno)));
  }
  Descriptor failure(ends[0]), failed(ends[1]);
  const sigset_t signals = passed_on();
  sigset_t before;
  sigprocmask(SIG_BLOCK, &signals, &before);
  const pid_t pid = fork();
  if (pid < 0) {
    throw RunError(kRunFailed, fmt::format("cannot start a process: {}", strerror(errno)));
  }
  if (pid == 0) become(command, changes, keep, before, failed.get());
  failed = Descriptor();

  int status = 0, error = 0;
  bool ended = false;
  if (read(failure.get(), &error, sizeof error) == sizeof error) {
    waitpid(pid, &status, 0);
    throw RunError(
        error == ENOENT && access(command[0].c_str(), F_OK) != 0 ? kNoCommand : kCannotRun,
        fmt::format("{} cannot be run: {}", fracgpu::quoted(command[0]).view(), strerror(error)));
  }
  for (;;) {
    int now = 0;
    pid_t changed = 0;
    while ((changed = waitpid(-1, &now, WNOHANG | WUNTRACED)) > 0) {
      if (changed != pid) continue;
      if (WIFSTOPPED(now)) {
        raise(SIGSTOP);  // stops as one job with the command, for a shell
      } else {
        status = now;
        ended = true;
        tell_of_survivors(command[0]);
      }
    }
    if (changed < 0 && errno == ECHILD) break;
    siginfo_t signal;
    if (sigwaitinfo(&signals, &signal) > 0 && signal.si_signo != SIGCHLD) {
      pass_on(signal, pid, ended);
    }
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return status;
}

void end_like(int wait_status) {
  if (!WIFSIGNALED(wait_status)) _exit(WEXITSTATUS(wait_status));
  const int number = WTERMSIG(wait_status);
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);  // the command has already left its own core dump
  signal(number, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, number);
  raise(number);
  sigprocmask(SIG_UNBLOCK, &only, nullptr);
  _exit(128 + number);
}

}  // namespace fracgpu::tools
