// The fracgpu command: reads its arguments, calls one function per subcommand, and turns errors
// into one line and an exit status.
#include <locale.h>

#include <exception>
#include <string_view>

#include "tools/advise/command.h"
#include "tools/cdi/command.h"
#include "tools/cli/arguments.h"
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
#include "tools/dra/command.h"
#include "tools/manual/manual.h"
#include "tools/metrics/metrics.h"
#include "tools/partition/command.h"
#include "tools/record/command.h"
#include "tools/report/command.h"

int main(int argc, char** argv) try {
  using namespace fracgpu::tools;
  setlocale(LC_ALL, "");
  Program program("fracgpu",
                  "Caps the GPU memory of containers and launch trees, and shows who holds what.",
                  "fracgpu " FRACGPU_VERSION);
  Command command = program.command();
  command.set_footer(exit_statuses_text());
  command.require_subcommand();
  add_status_command(command);
  add_top_command(command);
  add_explain_command(command);
  add_run_command(command);
  add_queue_command(command);
  add_record_command(command);
  add_report_command(command);
  add_advise_command(command);
  add_limit_command(command);
  add_gc_command(command);
  add_partition_command(command);
  add_doctor_command(command);
  add_metrics_command(command);
  add_cdi_command(command);
  add_dra_command(command, [argv](const DraOptions&) -> int { become_dra_driver(argv); });
  add_manual_options(command);

  if (completes(command, argc, argv)) return kOk;
  // The command that run starts has its own exit statuses.
  const std::string_view name = argc > 1 ? argv[1] : "";
  const bool runs = name == "run" || name == "record";
  return program.run(argc, argv, runs ? kRunFailed : kUsage);
} catch (const std::exception& error) {
  fracgpu::tools::complain(error.what());
  return fracgpu::tools::kFailed;
}
