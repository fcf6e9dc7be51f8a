// `fracgpu metrics`; see metrics.h.
#include "tools/metrics/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>

#include "shim/text.h"
#include "tools/descriptor.h"
#include "tools/exit_status.h"
#include "tools/metrics/collector.h"
#include "tools/metrics/http_server.h"
#include "tools/output.h"

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

[[noreturn]] void fail(const std::string& what, const std::string& path) {
  const int error = errno;
  throw std::runtime_error(
      fmt::format("cannot {} {}: {}", what, fracgpu::quoted(path).view(), strerror(error)));
}

// By a file beside it and a rename, so that a reader finds the old or the new one.
void replace_file(const std::string& path, const std::string& text) {
  const std::string fresh = fmt::format("{}.{}.new", path, getpid());
  const Descriptor file(
      open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (file.get() < 0) fail("make", fresh);
  fchmod(file.get(), 0644);  // the collector is another user, whatever the umask
  for (size_t at = 0; at < text.size();) {
    const ssize_t size = write(file.get(), text.data() + at, text.size() - at);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) {
      const int error = size == 0 ? ENOSPC : errno;
      unlink(fresh.c_str());
      errno = error;
      fail("write", fresh);
    }
    at += static_cast<size_t>(size);
  }
  if (rename(fresh.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(fresh.c_str());
    errno = error;
    fail("replace", path);
  }
}

void metrics(const MetricsOptions& options) {
  Collector collector(!options.no_processes);
  if (!options.listen.empty()) {
    HttpServer server(options.listen);
    complain("metrics at " + server.url() + "/metrics");
    server.serve([&collector] { return collector.collect(); });
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

void add_metrics_command(CLI::App& app, int& status) {
  const auto options = std::make_shared<MetricsOptions>();
  CLI::App* const command =
      app.add_subcommand("metrics", "Tell Prometheus what every tenant may use and uses");
  CLI::Option* const textfile = command->add_option(
      "--textfile", options->textfile, "Write this file, whose name ends in .prom, instead");
  command
      ->add_option("--listen", options->listen,
                   "Answer HTTP on this address until a signal ends it, as 127.0.0.1:9400")
      ->excludes(textfile);
  command->add_flag("--no-processes", options->no_processes,
                    "Leave out what has a label for each process");
  command->footer(kExamples);
  command->callback([options, &status] { status = guarded([&] { metrics(*options); }); });
}

}  // namespace fracgpu::tools
