// The fracgpu command: reads its arguments, calls one function per subcommand, and turns what went
// wrong into one line and an exit status.
#include <fmt/format.h>
#include <locale.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <string>

#include "tools/cdi/command.h"
#include "tools/cli/exit_status.h"
#include "tools/cli/output.h"
#include "tools/commands/explain.h"
#include "tools/commands/gc.h"
#include "tools/commands/limit.h"
#include "tools/commands/queue.h"
#include "tools/commands/run.h"
#include "tools/commands/status.h"
#include "tools/commands/top.h"
#include "tools/doctor/doctor.h"
#include "tools/launch/launch_tree.h"
#include "tools/manual/manual.h"
#include "tools/metrics/metrics.h"

namespace {

using namespace fracgpu::tools;

}  // namespace

int main(int argc, char** argv) try {
  setlocale(LC_ALL, "");
  CLI::App app("Caps the GPU memory of containers and launch trees, and shows who holds what.",
               "fracgpu");
  app.footer(exit_statuses_text());
  app.set_version_flag("--version", "fracgpu " FRACGPU_VERSION);
  app.require_subcommand(1);
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return fmt::format("fracgpu: {}; see fracgpu --help\n", error.what());
  });

  int code = kOk;
  add_status_command(app, code);
  add_top_command(app, code);
  add_explain_command(app, code);
  add_run_command(app, code);
  add_queue_command(app, code);
  add_limit_command(app, code);
  add_gc_command(app, code);
  add_doctor_command(app, code);
  add_metrics_command(app, code);
  add_cdi_command(app, code);
  add_manual_options(app);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // The command that run would have started has statuses of its own.
    const bool ran = argc > 1 && std::string_view(argv[1]) == "run";
    return app.exit(error) == 0 ? kOk : ran ? kRunFailed : kUsage;
  }
  return code;
} catch (const std::exception& error) {
  complain(error.what());
  return kFailed;
}
