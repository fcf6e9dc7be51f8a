// fracgpu-dra: what `fracgpu dra` becomes. Looks at the node's devices again and again, and serves
// kubelet meanwhile.
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <string_view>
#include <thread>

#include "tools/cdi/trusted_file.h"
#include "tools/cli/arguments.h"
#include "tools/cli/exit_status.h"
#include "tools/cli/output.h"
#include "tools/dra/command.h"
#include "tools/dra/kubelet_server.h"
#include "tools/dra/log.h"
#include "tools/metrics/http_server.h"

namespace fracgpu::tools::dra {
namespace {

constexpr time_t kFirstPause_s = 1;  // after what failed; doubled up to the interval

int print_slices(const DraOptions& options) {
  Json all = Json::array();
  for (const Json& spec : slices_of(ask_for_devices(), options.node, 1)) {
    all.push_back({{"apiVersion", "resource.k8s.io/v1"},
                   {"kind", "ResourceSlice"},
                   {"metadata", {{"generateName", "fracgpu-"}}},
                   {"spec", spec}});
  }
  print(Json{{"apiVersion", "v1"}, {"kind", "List"}, {"items", all}}.dump() + "\n");
  return kOk;
}

// Blocked in all threads, and waited for in this one.
sigset_t ending_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return set;
}

int serve(const DraOptions& options) {
  const sigset_t ending = ending_signals();
  const ClaimPaths paths{.node = {.library = options.files + "/libfracgpu.so",
                                  .command = options.files + "/fracgpu",
                                  .files = options.files},
                         .cdi = options.cdi,
                         .run = options.run};
  cdi::check_trusted(paths.node.library);
  cdi::check_trusted(paths.node.command);
  cdi::install_file(cdi::preload_path(paths.node), cdi::preload_text());
  const ApiClient api(find_credentials(options.kubeconfig));
  static Driver driver(api, PreparedClaims(paths), options.node);  // the server's thread stays
  if (!options.listen.empty()) {
    static HttpServer server(options.listen);
    log("info", "serving health and metrics", {{"url", server.url()}});
    std::thread([] {
      server.serve({{"/healthz", [] { return std::string("ok\n"); }},
                    {"/readyz", [] { return driver.readiness(); }},
                    {"/metrics", [] { return driver.metrics(); }}});
    }).detach();
  }
  std::optional<KubeletServer> kubelet;
  for (timespec pause = {};;) {
    const bool done = driver.look();
    // Claims cannot be judged before the devices are known.
    if (!kubelet && driver.knows_devices()) kubelet.emplace(driver, options.kubelet);
    const time_t longest = options.interval_s;
    pause.tv_sec = done ? longest : std::clamp<time_t>(2 * pause.tv_sec, kFirstPause_s, longest);
    if (const int got = sigtimedwait(&ending, nullptr, &pause); got > 0) {
      log("info", "ending", {{"signal", got}});
      return kOk;
    }
  }
}

}  // namespace
}  // namespace fracgpu::tools::dra

int main(int argc, char** argv) {
  using namespace fracgpu::tools;
  try {
    // How it asks a child for the devices.
    if (argc > 1 && std::string_view(argv[1]) == "doctor") return dra::be_devices_probe();
    Program program("fracgpu", "The driver by which Kubernetes shares GPUs.",
                    "fracgpu " FRACGPU_VERSION);
    add_dra_command(program.command(), [](const DraOptions& options) {
      return options.dry_run ? dra::print_slices(options) : dra::serve(options);
    });
    // Threads of the servers' may be under way: nothing of them is destroyed.
    const int status = program.run(argc, argv, kUsage);
    fflush(nullptr);
    _exit(status);
  } catch (const std::exception& error) {
    complain(error.what());
    return kFailed;
  }
}
