// See command.h.
#include "tools/dra/command.h"

#include <errno.h>
#include <fmt/core.h>
#include <string.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <stdexcept>

#include "tools/cli/arguments.h"

namespace fracgpu::tools {
namespace {

constexpr const char* kExamples = R"(Examples:
  fracgpu dra --node-name node-1 --dry-run      what this node would offer, as JSON
  fracgpu dra --node-name node-1 --listen 0.0.0.0:9411
                                                in a pod of a DaemonSet (containers/kubernetes/dra)

Offers the memory of GPUs, MIG instances and AMD partitions to Kubernetes' scheduler, and holds the
pods of a claim to what it was given. What happens is told on stderr, a JSON object on each line;
/healthz, /readyz and /metrics are answered at --listen.
Exit status: 0 ended by SIGTERM or SIGINT; 1 something failed, a line says what; 2 wrong usage.)";

}  // namespace

void add_dra_command(Command program, const std::function<int(const DraOptions&)>& body) {
  const auto options = std::make_shared<DraOptions>();
  Command command = program.add_subcommand("dra", "Be the driver by which Kubernetes shares GPUs");
  command.add_option("--node-name", options->node, "This node's name in Kubernetes").required();
  command.add_option("--kubeconfig", options->kubeconfig,
                     "How to reach the API server, as JSON, where this is not in a pod");
  command.add_option("--kubelet-dir", options->kubelet, "kubelet's folder (/var/lib/kubelet)");
  command.add_option("--cdi-dir", options->cdi, "Folder for the devices of claims (/var/run/cdi)");
  command.add_option("--files", options->files,
                     "Where the library and this command are on the node (/var/lib/fracgpu)");
  command.add_option("--run-dir", options->run, "Folder for what claims need (/run/fracgpu)");
  command
      .add_option("--interval", options->interval_s,
                  "Seconds between two looks at the GPUs and at what is published (30)")
      .range(1, 3600);
  command.add_option("--listen", options->listen, "Answer HTTP on this address, as 0.0.0.0:9411");
  command.add_flag("--dry-run", options->dry_run, "Print what would be published, and end");
  command.set_footer(kExamples);
  command.set_body([options, body] { return body(*options); });
}

void become_dra_driver(char** arguments) {
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::string driver = (here / "fracgpu-dra").string();
  execv(driver.c_str(), arguments);
  throw std::runtime_error(fmt::format(
      "{} cannot be started: {}; it is in the image that containers/Dockerfile builds for nodes, "
      "and in a build on a machine with what containers/packages.sh node installs",
      driver, strerror(errno)));
}

}  // namespace fracgpu::tools
