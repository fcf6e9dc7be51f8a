// `fracgpu advise`; see command.h.
#include "tools/advise/command.h"

#include <fmt/core.h>
#include <math.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "tools/advise/advice.h"
#include "tools/advise/trial.h"
#include "tools/cli/arguments.h"
#include "tools/cli/exit_status.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/cli/plain_text.h"
#include "tools/launch/launch_tree.h"
#include "tools/launch/outer_cap.h"
#include "tools/machine/visible_gpus.h"
#include "tools/record/launch.h"
#include "tools/recording/reader.h"
#include "tools/report/units.h"

namespace fracgpu::tools {
namespace {

constexpr const char* kExamples = R"(Examples:
  fracgpu advise -- python train.py           runs it once and says how small a cap may be
  fracgpu advise --verify -- ./job            and tries, by running it again under smaller caps
  fracgpu advise --verify --success 'grep -q done "$FRACGPU_OUTPUT"' -- ./job
                                              where its exit status does not tell that it worked
  fracgpu advise --from monday.fgr tuesday.fgr     by recordings of many runs

What a program needed is what it took less what its CUDA pools kept unused and would have given back
under a cap. What a framework keeps in a cache of its own counts as needed: --verify finds out whether
it does with less, and what the time becomes, since it may have to trim again and again.
Exit status: 0 advice was given; 1 the command failed, or used no GPU, or nothing could be read; 2
wrong usage.)";

struct AdviseOptions {
  std::vector<std::string> command;  // or with `from` the recordings
  std::string success, keep;
  double margin_percent = 5;
  bool from = false, verify = false, json = false;
};

std::string limit_text(const std::vector<Advice>& all, double scale = 1) {
  constexpr uint64_t kMiB = 1u << 20;
  std::string text;
  for (const Advice& each : all) {
    const auto cap = static_cast<uint64_t>(static_cast<double>(each.cap) * scale) / kMiB;
    if (all.size() == 1) return fmt::format("{}MiB", cap);
    text += fmt::format("{}{}={}MiB", text.empty() ? "" : ",", each.need.key, cap);
  }
  return text;
}

// No more than the GPU has, if that is known.
uint64_t cap_for(uint64_t needed, double margin, uint64_t physical) {
  const uint64_t cap = with_margin(needed, margin);
  return physical > 0 ? std::min(cap, physical) : cap;
}

std::vector<Advice> advise_by(const std::vector<std::vector<Need>>& runs,
                              const std::vector<Gpu>& gpus, double margin) {
  std::vector<Advice> all;
  const std::vector<Spread> spreads = spread_of(runs);
  for (const Spread& spread : spreads) {
    Advice advice;
    for (const std::vector<Need>& run : runs) {
      for (const Need& need : run) {
        if (need.key == spread.key && need.needed >= advice.need.needed) advice.need = need;
      }
    }
    if (runs.size() > 1) advice.spread = spread;
    advice.cap = cap_for(spread.p99, margin, spread.physical);
    for (const Gpu& gpu : gpus) {
      if (gpu.key == spread.key) advice.slices = slices_for(advice.cap, gpu, gpus);
    }
    all.push_back(std::move(advice));
  }
  return all;
}

// Complains about what is missing in the recording. `name` of it; empty: it was made just now.
std::vector<Need> read_needs(const std::string& path, const std::string& name) {
  recording::Reader reader(path);
  const report::Analysis analysis = report::analyse(reader);
  const std::string start = name.empty() ? "" : fmt::format("{}: ", fracgpu::quoted(name).view());
  if (!analysis.damage.empty()) complain(start + analysis.damage);
  if (analysis.dropped > 0) {
    complain(fmt::format("{}{} came too fast and {} dropped: what it needed may be wrong{}", start,
                         report::count(analysis.dropped, "event"),
                         analysis.dropped == 1 ? "was" : "were",
                         name.empty() ? "; --verify finds out" : ""));
  }
  // Those of no process name processes that the recorder missed.
  constexpr int kNamed = 8;
  int unrecorded = 0;
  std::string names;
  for (const report::Mark& each : analysis.marks) {
    if (each.process != recording::kNone || ++unrecorded > kNamed) continue;
    names += (names.empty() ? "" : "; ") + clean(each.text.c_str(), each.text.size());
  }
  if (unrecorded > 0) {
    complain(fmt::format("{}the advice leaves out what was not recorded: {}{}", start, names,
                         unrecorded > kNamed ? "; ..." : ""));
  }
  return needs_of(analysis);
}

// A recording that is deleted with this object, unless the user keeps it.
class TemporaryRecording {
 public:
  explicit TemporaryRecording(const std::string& keep) : path_(keep), kept_(!keep.empty()) {
    if (kept_) return;
    char name[] = "/tmp/fracgpu-advise-XXXXXX";
    const int fd = mkstemp(name);
    if (fd < 0) throw std::runtime_error("cannot make a file in /tmp; name one with --keep FILE");
    close(fd);
    path_ = name;
  }
  ~TemporaryRecording() {
    if (!kept_) unlink(path_.c_str());
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool kept_;
};

struct FirstRun {
  std::vector<Need> needs;
  double seconds = 0;
};

FirstRun watch(const AdviseOptions& options) {
  const TemporaryRecording file(options.keep);
  timespec began, ended;
  clock_gettime(CLOCK_MONOTONIC, &began);
  // The command's output must not mix with the JSON.
  std::vector<std::string> command = options.command;
  if (options.json) {
    find_command(command[0]);
    const std::vector<std::string> aside = {"sh", "-c", "exec \"$0\" \"$@\" >&2"};
    command.insert(command.begin(), aside.begin(), aside.end());
  }
  const RecordedEnd end = run_recorded(
      {.command = command, .memory = "", .recording = {.output = file.path(), .frames = 0}});
  clock_gettime(CLOCK_MONOTONIC, &ended);
  if (!end.summary.failure.empty()) throw std::runtime_error(end.summary.failure);
  if (!WIFEXITED(end.wait_status) || WEXITSTATUS(end.wait_status) != 0) {
    throw std::runtime_error(fmt::format(
        "{} failed ({}) although it had all the memory there is, so nothing can be said of it",
        command_text(options.command),
        WIFEXITED(end.wait_status) ? fmt::format("exit status {}", WEXITSTATUS(end.wait_status))
                                   : fmt::format("signal {}", WTERMSIG(end.wait_status))));
  }
  FirstRun run{.needs = read_needs(file.path(), "")};
  run.seconds = static_cast<double>(ended.tv_sec - began.tv_sec) +
                static_cast<double>(ended.tv_nsec - began.tv_nsec) / 1e9;
  return run;
}

// On all GPUs at once, with caps at the same share of the advised caps.
void verify(const AdviseOptions& options, std::vector<Advice>& all, double seconds_bare) {
  constexpr uint64_t kMiB = 1u << 20;
  const uint64_t whole = all[0].cap;
  // No smaller than the memory that cannot be given back, and in at most nine runs.
  const uint64_t least = std::min(all[0].need.unnamed, whole / 2) / kMiB * kMiB;
  const uint64_t step = std::max<uint64_t>(16 * kMiB, (whole - least) / 128 / kMiB * kMiB);
  TrialOptions trial{.command = options.command,
                     .success = options.success,
                     .timeout_s = std::ceil(10 * seconds_bare + 10)};
  const auto scale_of = [&](uint64_t cap) {
    return static_cast<double>(cap) / static_cast<double>(whole);
  };
  const auto run = [&](uint64_t cap) { return run_trial(trial, limit_text(all, scale_of(cap))); };
  const auto tell = [&](uint64_t cap, const Trial& done) {
    complain(fmt::format("{}: {} in {:.1f} s", limit_text(all, scale_of(cap)),
                         done.passed        ? "passed"
                         : done.timed_out   ? "not done"
                         : done.status != 0 ? fmt::format("failed (exit status {})", done.status)
                                            : "did not succeed",
                         done.seconds));
  };
  Search search{.least = least, .most = whole, .step = step};
  Found found = find_smallest(search, run, tell);
  // The command needs more than it seemed to: tries up to the memory that it took.
  if (found.bytes == 0) {
    const uint64_t more =
        cap_for(all[0].need.taken, options.margin_percent / 100, all[0].need.physical);
    if (more > whole) {
      const int before = found.runs;
      found = find_smallest({.least = whole, .most = more, .step = step}, run, tell);
      found.runs += before;
    }
  }
  for (Advice& each : all) {
    each.found = found;
    each.found->bytes =
        static_cast<uint64_t>(static_cast<double>(each.cap) * scale_of(found.bytes)) / kMiB * kMiB;
  }
}

std::string verified_text(const std::vector<Advice>& all, double seconds_bare) {
  const Found& found = *all[0].found;
  if (found.bytes == 0) {
    return "It passed under none of these caps: its exit status may depend on something else.\n";
  }
  const double ratio = seconds_bare > 0 ? found.seconds / seconds_bare : 1;
  return fmt::format(
      "Verified in {} runs: it passes with {}, in {:.1f} s ({:.1f} s without a cap{}).\n",
      found.runs,
      limit_text(all, static_cast<double>(found.bytes) / static_cast<double>(all[0].cap)),
      found.seconds, seconds_bare, ratio > 1.2 ? fmt::format(", {:.1f} times as long", ratio) : "");
}

// Whether a program that used these GPUs finds each under the same number if it sees only them, as
// in a launch to which they are given: no GPU that it could see and did not use precedes them.
bool keeps_numbers(const std::vector<Advice>& all, const std::vector<Gpu>& gpus) {
  const std::vector<std::string> hidden = hidden_by_environment(gpus);
  size_t found = 0;
  std::vector<Gpu::Vendor> ended;  // whose next GPUs have another number then
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (!hidden[i].empty() || gpus[i].divided) continue;
    const bool used = std::any_of(all.begin(), all.end(),
                                  [&](const Advice& each) { return each.need.key == gpus[i].key; });
    const bool moves = std::find(ended.begin(), ended.end(), gpus[i].vendor) != ended.end();
    if (used && moves) return false;
    if (!used) ended.push_back(gpus[i].vendor);
    found += used ? 1 : 0;
  }
  return found == all.size();
}

// Runs on one GPU each may have got different ones of the same size. They count as runs on the
// first one's.
void name_alike(std::vector<std::vector<Need>>& runs) {
  for (const std::vector<Need>& run : runs) {
    if (run.size() != 1 || run[0].physical != runs[0][0].physical) return;
  }
  for (std::vector<Need>& run : runs) {
    run[0].key = runs[0][0].key;
    run[0].name = runs[0][0].name;
  }
}

int advise(const AdviseOptions& options) {
  if (options.command.empty()) {
    throw WrongUsage(
        "say what to run, behind --, as in: fracgpu advise -- python train.py; or name recordings, "
        "as in: fracgpu advise --from memory.fgr");
  }
  if (std::isnan(options.margin_percent))
    throw WrongUsage("--margin takes a number from 0 to 1000");
  if (options.from && options.verify)
    throw WrongUsage("--verify runs the command: it needs one, and no --from");
  if (options.from && !options.keep.empty())
    throw WrongUsage("--keep keeps the recording of a command: it needs one, and no --from");
  if (options.from && !options.success.empty())
    throw WrongUsage("--success judges the runs of a command: it needs one, and no --from");
  if (!options.success.empty() && !options.verify)
    throw WrongUsage("--success judges the runs of --verify: add that");
  const std::vector<Gpu> gpus = list_gpus();
  if (options.verify && find_outer_cap(gpus)) {
    throw std::runtime_error(
        "--verify sets caps of its own, which it cannot do inside a capped "
        "launch or container: run it outside");
  }
  std::vector<std::vector<Need>> runs;
  double seconds = 0;
  if (options.from) {
    for (const std::string& path : options.command) runs.push_back(read_needs(path, path));
  } else {
    FirstRun run = watch(options);
    runs.push_back(std::move(run.needs));
    seconds = run.seconds;
  }
  name_alike(runs);
  std::vector<Advice> all = advise_by(runs, gpus, options.margin_percent / 100);
  if (all.empty()) {
    throw std::runtime_error(
        "it used no GPU memory that could be counted; fracgpu doctor -- CMD says why that may be");
  }
  if (options.verify) verify(options, all, seconds);
  const bool keeps = keeps_numbers(all, gpus);
  Json rows = Json::array();
  std::string text;
  for (const Advice& each : all) {
    rows.push_back(json_of(each));
    text += text_of(each, options.margin_percent, options.from ? "" : command_text(options.command),
                    {.cap = all.size() == 1, .slice = all.size() == 1 && keeps});
  }
  if (all.size() > 1 && !keeps) {
    text += fmt::format(
        "caps of all: {}; no command: fracgpu run hides the GPUs that it does not name, so these "
        "may get other numbers\n",
        limit_text(all));
  } else if (all.size() > 1) {
    text += fmt::format("caps of all: fracgpu run --memory {} {}\n", limit_text(all),
                        command_words(options.from ? "" : command_text(options.command)));
  }
  if (options.verify) text += verified_text(all, seconds);
  print(options.json ? Json{{"gpus", rows}}.dump() + "\n" : text);
  return kOk;
}

}  // namespace

void add_advise_command(Command program) {
  const auto options = std::make_shared<AdviseOptions>();
  Command command =
      program.add_subcommand("advise", "Say how small a cap a command may have, by running it");
  command.add_flag("--verify", options->verify,
                   "Run it again under smaller caps, until the smallest is found that passes");
  command.add_option("--success", options->success,
                     "A shell command that judges whether it worked, besides its exit status");
  command.add_option("--margin", options->margin_percent, "Percent above what was needed")
      .range(0.0, 1000.0)
      .shows_default();
  command.add_option("--keep", options->keep, "Keep the recording in this file");
  command.add_flag("--from", options->from,
                   "Run nothing: the words are recordings of one or more runs");
  command.add_flag("--json", options->json, "For programs");
  command.add_command_to_run("COMMAND", options->command,
                             "What to run, with its arguments; best behind --");
  command.set_footer(kExamples);
  command.set_body([options] { return advise(*options); });
}

}  // namespace fracgpu::tools
