// The fracgpu command: reads its arguments, calls one function per subcommand, and turns what went
// wrong into one line and an exit status.
#include <fmt/format.h>
#include <locale.h>
#include <stdio.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <string>
#include <vector>

#include "tools/gc.h"
#include "tools/launch_tree.h"
#include "tools/ledger_reader.h"
#include "tools/limit.h"
#include "tools/output.h"
#include "tools/queue.h"
#include "tools/run.h"
#include "tools/status.h"

namespace {

using namespace fracgpu::tools;

constexpr int kOk = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;

struct StatusOptions {
  std::vector<std::string> tenants;
  bool json = false;
};

int status(const StatusOptions& options) {
  const std::vector<std::string> names = options.tenants.empty() ? tenant_names() : options.tenants;
  std::vector<TenantUse> found;
  int code = kOk;
  for (const std::string& name : names) {
    try {
      found.push_back(read_tenant(name));
    } catch (const std::runtime_error& error) {
      complain(error.what());
      code = kFailed;
    }
  }
  if (names.empty()) {
    complain(
        "no tenant has a ledger on this machine; one is made by the first GPU call under a cap");
    code = kFailed;
  }
  const std::string shown =
      options.json ? status_json(found) : status_text(found, Style::of_stdout());
  if (fputs(shown.c_str(), stdout) == EOF || fflush(stdout) != 0) {
    complain("cannot write to standard output");
    code = kFailed;
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) try {
  setlocale(LC_ALL, "");
  CLI::App app("Caps the GPU memory of containers and launch trees, and shows who holds what.",
               "fracgpu");
  app.footer(
      "Exit status: 0 all is well; 1 nothing was found, or something failed; 2 wrong usage.");
  app.set_version_flag("--version", "fracgpu " FRACGPU_VERSION);
  app.require_subcommand(1);
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return fmt::format("fracgpu: {}; see fracgpu --help\n", error.what());
  });

  StatusOptions status_options;
  CLI::App* const status_command = app.add_subcommand(
      "status", "Show what every tenant may use, uses and was refused, and its processes");
  status_command->add_option("TENANT", status_options.tenants,
                             "Only these; all when none is named");
  status_command->add_flag("--json", status_options.json, "For programs; amounts are in bytes");
  status_command->footer(app.get_footer());

  int code = kOk;
  add_run_command(app, code);
  add_queue_command(app, code);
  add_limit_command(app, code);
  add_gc_command(app, code);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // The command that run would have started has statuses of its own.
    const bool ran = argc > 1 && std::string_view(argv[1]) == "run";
    return app.exit(error) == 0 ? kOk : ran ? kRunFailed : kUsage;
  }
  return status_command->parsed() ? status(status_options) : code;
} catch (const std::exception& error) {
  complain(error.what());
  return kFailed;
}
