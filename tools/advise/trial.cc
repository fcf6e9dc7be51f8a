// See trial.h.
#include "tools/advise/trial.h"

#include <fmt/core.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <stdexcept>

#include "tools/cli/descriptor.h"
#include "tools/launch/launch_tree.h"
#include "tools/launch/member.h"

namespace fracgpu::tools {
namespace {

double now_s() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

int shell_status(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

// A file for the command's output. It is deleted with this object.
class OutputFile {
 public:
  OutputFile() {
    file_ = Descriptor(mkstemp(path_));
    if (file_.get() < 0) throw std::runtime_error("cannot make a file in /tmp for what it prints");
  }
  ~OutputFile() { unlink(path_); }
  const char* path() const { return path_; }

 private:
  char path_[32] = "/tmp/fracgpu-advise-XXXXXX";
  Descriptor file_;
};

// Exit statuses of timeout(1) if it had to end the command.
constexpr int kTimedOut = 124, kKilled = 137;

}  // namespace

Trial run_trial(const TrialOptions& options, const std::string& limit) {
  const OutputFile output;
  std::vector<std::string> command = {"sh", "-c", "exec >\"$0\" 2>&1 </dev/null; exec \"$@\"",
                                      output.path()};
  if (options.timeout_s > 0) {
    for (const std::string& word : {std::string("timeout"), std::string("-k"), std::string("5"),
                                    fmt::format("{:.0f}", options.timeout_s)}) {
      command.push_back(word);
    }
  }
  command.insert(command.end(), options.command.begin(), options.command.end());
  const std::string tenant = tenant_or_new("");
  Trial trial;
  const double began = now_s();
  trial.status =
      shell_status(run_tree(command, tenant_environment(tenant, limit, {}, nullptr), -1));
  trial.seconds = now_s() - began;
  remove_dead_ledger(tenant);
  trial.timed_out = options.timeout_s > 0 &&
                    (trial.status == kTimedOut || trial.status == kKilled) &&
                    trial.seconds >= options.timeout_s;
  trial.passed = trial.status == 0;
  if (trial.passed && !options.success.empty()) {
    const int judged =
        run_tree({"sh", "-c", options.success}, {{"FRACGPU_OUTPUT", output.path()}}, -1);
    trial.passed = shell_status(judged) == 0;
  }
  return trial;
}

Found find_smallest(const Search& search, const std::function<Trial(uint64_t)>& run,
                    const std::function<void(uint64_t, const Trial&)>& tell) {
  Found found;
  uint64_t fails = search.least, passes = search.most;
  const auto passes_at = [&](uint64_t bytes) {
    const Trial trial = run(bytes);
    ++found.runs;
    tell(bytes, trial);
    if (!trial.passed) return false;
    found.bytes = bytes;
    found.seconds = trial.seconds;
    return true;
  };
  if (!passes_at(passes)) return found;
  while (passes - fails > search.step) {
    const uint64_t middle = fails + (passes - fails) / 2 / search.step * search.step;
    const uint64_t at = middle > fails ? middle : fails + search.step;
    if (at >= passes) break;
    (passes_at(at) ? passes : fails) = at;
  }
  return found;
}

}  // namespace fracgpu::tools
