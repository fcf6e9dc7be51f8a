// Reads the state, draws it, and waits for a key or the next interval; see top.h.
#include "tools/commands/top.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "tools/cli/arguments.h"
#include "tools/cli/exit_status.h"
#include "tools/cli/output.h"
#include "tools/commands/show_command.h"
#include "tools/commands/top_screen.h"
#include "tools/ui/terminal.h"

namespace fracgpu::tools {
namespace {

constexpr const char* kExamples = R"(Examples:
  fracgpu top                    every GPU, and who uses it; q quits, h says which keys there are
  fracgpu top team-a             this tenant, and the GPUs that it uses
  fracgpu top --interval 0.5     looks twice a second

In a container only its own tenant is shown; --all shows each whose ledger can be seen.
Exit status: 0 quit; 1 no terminal, or something failed; 2 wrong usage.)";

struct TopOptions {
  Scope scope;
  double interval_s = 2;
};

int64_t now_ms() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

// The signal that requested the end, or 0.
int run_top(const TopOptions& options) {
  Terminal terminal;
  TopScreen screen(Style::of_stdout());
  const auto interval = static_cast<int64_t>(options.interval_s * 1000);
  for (;;) {
    const MachineState machine = look_at_machine(options.scope);
    const int64_t next_look = now_ms() + interval;
    for (int64_t left = interval; left > 0; left = next_look - now_ms()) {
      const Terminal::Size size = terminal.size();
      terminal.draw(screen.picture(machine, size.rows, size.columns));
      const Terminal::Event event = terminal.wait(static_cast<int>(left));
      using Kind = Terminal::Event::Kind;
      if (event.kind == Kind::signal) return event.number;
      if (event.kind == Kind::gone) return SIGHUP;
      if (event.kind == Kind::key && !screen.press(event.number)) return 0;
    }
  }
}

}  // namespace

void add_top_command(Command program) {
  const auto options = std::make_shared<TopOptions>();
  Command command = program.add_subcommand("top", "Show live who uses what");
  add_scope_options(command, options->scope);
  command.add_option("--interval", options->interval_s, "Seconds between two looks; 2")
      .range(0.1, 3600.0);
  command.set_footer(kExamples);
  command.set_body([options] {
    const int signal = run_top(*options);
    // The terminal is restored, so the process ends by the signal as other programs do.
    if (signal != 0) raise(signal);
    return kOk;
  });
}

}  // namespace fracgpu::tools
