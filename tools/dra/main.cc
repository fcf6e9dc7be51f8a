// fracgpu-dra: the program that `fracgpu dra` becomes. It checks the node's devices periodically,
// and serves kubelet.
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <thread>

#include "shim/base/clock.h"
#include "tools/cdi/trusted_file.h"
#include "tools/cli/arguments.h"
#include "tools/cli/exit_status.h"
#include "tools/cli/output.h"
#include "tools/dra/command.h"
#include "tools/dra/kubelet_server.h"
#include "tools/dra/log.h"
#include "tools/dra/slice_watch.h"
#include "tools/metrics/http_server.h"

namespace fracgpu::tools::dra {
namespace {

constexpr time_t kFirstPause_s = 1;  // after a failure; doubled up to the interval

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

// Signals are blocked in all threads. This thread waits for them.
constexpr int kSlicesChanged = SIGUSR1;
sigset_t set_of(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : signals) sigaddset(&set, number);
  return set;
}

// The signal that arrived, or 0.
int wait_for(const sigset_t& set, time_t seconds) {
  const timespec pause = {.tv_sec = seconds, .tv_nsec = 0};
  return std::max(sigtimedwait(&set, nullptr, &pause), 0);
}

int serve(const DraOptions& options) {
  const sigset_t ending = set_of({SIGTERM, SIGINT});
  const sigset_t all = set_of({SIGTERM, SIGINT, kSlicesChanged});
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  signal(SIGPIPE, SIG_IGN);
  const ClaimPaths paths{.node = {.library = options.files + "/libfracgpu.so",
                                  .command = options.files + "/fracgpu",
                                  .files = options.files},
                         .cdi = options.cdi,
                         .run = options.run};
  cdi::check_trusted(paths.node.library);
  cdi::check_trusted(paths.node.command);
  cdi::install_file(cdi::preload_path(paths.node), cdi::preload_text());
  static const ApiClient api(find_credentials(options.kubeconfig));
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
  std::thread([&options] {
    watch_slices(api, options.node, [] {
      driver.slices_changed();
      kill(getpid(), kSlicesChanged);
    });
  }).detach();
  std::optional<KubeletServer> kubelet;
  uint64_t next_look_ms = 0;
  for (time_t pause = 0;;) {
    const bool looks = coarse_now_ms() >= next_look_ms;
    if (looks ? driver.look() : driver.keep_published()) {
      if (looks) next_look_ms = coarse_now_ms() + 1000 * static_cast<uint64_t>(options.interval_s);
      const uint64_t now_ms = coarse_now_ms();
      pause = static_cast<time_t>((std::max(next_look_ms, now_ms) - now_ms) / 1000) + 1;
    } else {
      next_look_ms = 0;
      pause = std::clamp<time_t>(2 * pause, kFirstPause_s, options.interval_s);
    }
    // Claims cannot be checked before the devices are known.
    if (!kubelet && driver.knows_devices()) kubelet.emplace(driver, options.kubelet);
    int got = wait_for(all, pause);
    // More changes may be under way, including those by this driver.
    if (got == kSlicesChanged) got = wait_for(ending, kFirstPause_s);
    if (got != 0) {
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
    // The driver starts itself in this way to ask a child for the devices.
    if (argc > 1 && std::string_view(argv[1]) == "doctor") return dra::be_devices_probe();
    Program program("fracgpu", "The driver by which Kubernetes shares GPUs.",
                    "fracgpu " FRACGPU_VERSION);
    add_dra_command(program.command(), [](const DraOptions& options) {
      return options.dry_run ? dra::print_slices(options) : dra::serve(options);
    });
    // Threads of the servers may still run, so nothing that they use is destroyed.
    const int status = program.run(argc, argv, kUsage);
    fflush(nullptr);
    _exit(status);
  } catch (const std::exception& error) {
    complain(error.what());
    return kFailed;
  }
}
