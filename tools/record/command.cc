// `fracgpu record`; see command.h.
#include "tools/record/command.h"

#include <errno.h>
#include <fmt/core.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>

#include "fracgpu/recording_ring.h"
#include "shim/base/clock.h"
#include "shim/ledger/ledger.h"
#include "tools/cli/arguments.h"
#include "tools/cli/exit_status.h"
#include "tools/cli/output.h"
#include "tools/launch/launch_tree.h"
#include "tools/machine/gpus.h"
#include "tools/record/launch.h"

namespace fracgpu::tools {
namespace {

constexpr const char* kExamples = R"(Examples:
  fracgpu record -- python train.py                  into memory.fgr; fracgpu report shows it
  fracgpu record --output run1.fgr --memory 8GiB -- ./job
                                                     under a cap
  fracgpu record --frames 0 -- ./job                 without call stacks, which is cheaper
  fracgpu record --attach team-a --output now.fgr    what runs already, until Ctrl-C

Without a cap around it, and without --memory, the command may use all that there is; what it does is
counted all the same. A file that is there is not replaced without --force. A recording is complete up to a tenth of a second before its end, whoever is
killed.
Exit status: as that of fracgpu run; of --attach 0, or 1 and a line says what failed.)";

constexpr int kMostFrames = static_cast<int>(ring::kMostFrames);

struct RecordOptions {
  std::string output = "memory.fgr", memory, attach;
  int frames = RecordingOptions{}.frames;
  bool force = false;
  std::vector<std::string> command;

  RecordingOptions recording() const {
    return {.output = output, .force = force, .frames = frames, .attached = !attach.empty()};
  }
};

int record_launch(const RecordOptions& options) {
  if (options.command.empty()) {
    throw RunError(kRunFailed,
                   "what is to be recorded? Write a command behind --, as in: fracgpu record -- "
                   "python train.py; or name a tenant that runs: fracgpu record --attach TENANT");
  }
  const RecordedEnd end = run_recorded(
      {.command = options.command, .memory = options.memory, .recording = options.recording()});
  tell(end.summary, options.output);
  end_like(end.wait_status);
}

void check_permission(const Ledger& ledger, const std::string& tenant) {
  struct stat status = {};
  if (geteuid() == 0 || (stat(ledger.path(), &status) == 0 && status.st_uid == geteuid())) return;
  throw std::runtime_error(fmt::format(
      "tenant {} belongs to another user; only that user and root may record it", tenant));
}

// Waits until a signal requests the end, or until the tenant has ended.
void wait_for_end(const Ledger& ledger, const sigset_t& signals) {
  constexpr timespec kPause = {0, 100'000'000};
  while (ledger.any_alive()) {
    if (sigtimedwait(&signals, nullptr, &kPause) > 0) return;
  }
}

int record_running(const RecordOptions& options) {
  if (!options.command.empty() || !options.memory.empty()) {
    throw std::runtime_error(
        "--attach records what runs already: it takes no command, no --memory");
  }
  const std::string& tenant = options.attach;
  Ledger ledger;
  Message error;
  const LedgerFile::Result result = ledger.manage(tenant.c_str(), error);
  if (result == LedgerFile::Result::absent ||
      (result == LedgerFile::Result::ok && !ledger.any_alive())) {
    throw std::runtime_error(
        fmt::format("no tenant {} runs here; fracgpu status shows those that do",
                    fracgpu::quoted(tenant).view()));
  }
  if (result != LedgerFile::Result::ok) throw std::runtime_error(error.c_str());
  check_permission(ledger, tenant);
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, number);
  sigprocmask(SIG_BLOCK, &signals, nullptr);

  const std::vector<Gpu> gpus = list_gpus();
  RecordingOptions recording = options.recording();
  recording.command = "tenant " + tenant;
  recording.device_name = [&](const std::string& key) {
    for (const Gpu& gpu : gpus) {
      if (gpu.key == key) return gpu.label();
    }
    return key;
  };
  TenantRecorder recorder(tenant, recording);
  ledger.ask_for_recording(unix_now_ms());
  complain(
      fmt::format("recording tenant {}; each process begins at its next allocation that takes "
                  "new memory; Ctrl-C ends it",
                  tenant));
  wait_for_end(ledger, signals);
  ledger.ask_for_recording(0);
  const RecordingSummary summary = recorder.finish();
  tell(summary, options.output);
  return summary.failure.empty() ? kOk : kFailed;
}

int record(const RecordOptions& options) {
  if (!options.attach.empty()) return record_running(options);
  try {
    return record_launch(options);
  } catch (const RunError& error) {
    complain(error.what());
    return error.status;
  } catch (const std::exception& error) {
    complain(error.what());
    return kRunFailed;
  }
}

}  // namespace

void add_record_command(Command program) {
  const auto options = std::make_shared<RecordOptions>();
  Command command = program.add_subcommand(
      "record", "Record what a command and its descendants do with GPU memory");
  command.add_option("--output", options->output, "The file to write").shows_default();
  command.add_option("--memory", options->memory, "A cap, as run --memory has it");
  command.add_option("--attach", options->attach,
                     "Record a tenant that runs, instead of a command");
  command.add_option("--frames", options->frames, "Frames to take of each call stack; 0: none")
      .range(0, kMostFrames)
      .shows_default();
  command.add_flag("--force", options->force, "Replace the file if it is there, whatever it is");
  command.add_command_to_run("COMMAND", options->command,
                             "What to run, with its arguments; best behind --");
  command.set_footer(kExamples);
  command.set_body([options] { return record(*options); });
}

}  // namespace fracgpu::tools
