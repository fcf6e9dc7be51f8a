// `fracgpu metrics`; see metrics.h.
#include "tools/metrics/metrics.h"

#include <fmt/core.h>

#include <memory>

#include "shim/base/text.h"
#include "tools/cli/arguments.h"
#include "tools/cli/exit_status.h"
#include "tools/cli/output.h"
#include "tools/cli/replace_file.h"
#include "tools/metrics/collector.h"
#include "tools/metrics/http_server.h"

namespace fracgpu::tools {
namespace {

constexpr const char* kExamples = R"(Examples:
  fracgpu metrics                        once, on standard output
  fracgpu metrics --textfile /var/lib/node_exporter/fracgpu.prom
                                         for node_exporter's textfile collector, from a timer; the
                                         file is replaced at once and never seen half written
  fracgpu metrics --listen 127.0.0.1:9400
                                         for Prometheus itself, at /metrics

METRICS.md, beside the dashboard, is the table of all metrics. There is no password: who may connect
may read.
Exit status: 0 told; 1 something failed, a line says what; 2 wrong usage.)";

struct MetricsOptions {
  std::string textfile, listen;
  bool no_processes = false;
};

void metrics(const MetricsOptions& options) {
  Collector collector(!options.no_processes);
  if (!options.listen.empty()) {
    HttpServer server(options.listen);
    complain("metrics at " + server.url() + "/metrics");
    server.serve({{"/metrics", [&collector] { return collector.collect(); }}});
  }
  if (options.textfile.empty()) {
    print(collector.collect());
    return;
  }
  if (!options.textfile.ends_with(".prom")) {
    throw std::runtime_error(
        fmt::format("{} is read by no textfile collector; give the file a name that ends in .prom",
                    fracgpu::quoted(options.textfile).view()));
  }
  replace_file(options.textfile, collector.collect());
}

}  // namespace

void add_metrics_command(Command program) {
  const auto options = std::make_shared<MetricsOptions>();
  Command command =
      program.add_subcommand("metrics", "Tell Prometheus what every tenant may use and uses");
  const Option textfile = command.add_option("--textfile", options->textfile,
                                             "Write this file, whose name ends in .prom, instead");
  command
      .add_option("--listen", options->listen,
                  "Answer HTTP on this address until a signal ends it, as 127.0.0.1:9400")
      .excludes(textfile);
  command.add_flag("--no-processes", options->no_processes,
                   "Leave out what has a label for each process");
  command.set_footer(kExamples);
  command.set_body([options] {
    metrics(*options);
    return kOk;
  });
}

}  // namespace fracgpu::tools
