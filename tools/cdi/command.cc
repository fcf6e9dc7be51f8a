// `fracgpu cdi`; see command.h.
#include "tools/cdi/command.h"

#include <fmt/core.h>

#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>

#include "shim/base/text.h"
#include "tools/cdi/image.h"
#include "tools/cdi/spec.h"
#include "tools/cdi/trusted_file.h"
#include "tools/cli/arguments.h"
#include "tools/cli/exit_status.h"
#include "tools/cli/output.h"
#include "tools/launch/launch_tree.h"

namespace fracgpu::tools {
namespace {

using cdi::Class;
using cdi::NodePaths;

constexpr const char* kExamples = R"(Examples:
  fracgpu cdi generate                              1gb to 192gb, and shares from 0.05 to 0.95
  fracgpu cdi generate --memory 8gb,12gb --fraction 0.5
  docker run --device nvidia.com/gpu=0 --device fracgpu.dev/memory=8gb IMAGE
  podman run --device nvidia.com/gpu=0 --device fracgpu.dev/fraction=0.5 IMAGE
  fracgpu cdi generate --tenant team-a              and a name for containers that share one cap:
  podman run --pod team --device fracgpu.dev/memory=8gb --device fracgpu.dev/tenant=team-a IMAGE

Containers started afterwards can ask for these devices, whatever their image; where its C library
is not glibc 2.31 or later they are refused. Run it again after the library was moved.
Exit status: 0 done; 1 not done, a line says why; 2 wrong usage.)";

struct GenerateOptions {
  std::string output = "/etc/cdi", files = "/var/lib/fracgpu", library, command;
  std::vector<std::string> memory, fraction, tenant;
};

std::string this_program() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

void check_path(const std::string& path, const char* option) {
  if (!path.empty() && path.front() == '/') return;
  throw std::runtime_error(
      fmt::format("{} {} is not understood; accepted: a path from the root folder on", option,
                  fracgpu::quoted(path).view()));
}

void generate(const GenerateOptions& options) {
  const NodePaths paths{.library = options.library.empty() ? library_path() : options.library,
                        .command = options.command.empty() ? this_program() : options.command,
                        .files = options.files};
  check_path(paths.library, "--library");
  check_path(paths.command, "--command");
  check_path(paths.files, "--files");
  Class classes[] = {
      {"memory", options.memory}, {"fraction", options.fraction}, {"tenant", options.tenant}};
  const bool all = options.memory.empty() && options.fraction.empty();
  for (Class& each : classes) {
    if (all && each.name != "tenant") each = cdi::default_class(each.name);
    for (const std::string& device : each.devices) cdi::check_device(each.name, device);
  }
  if (options.output == "-") {
    for (const Class& each : classes) {
      if (!each.devices.empty()) print(cdi::spec_of(each, paths).dump() + "\n");
    }
    return;
  }
  check_path(options.output, "--output");
  cdi::check_trusted(paths.library);
  cdi::check_trusted(paths.command);
  // The specs come last: an engine that reads one finds all files that it names.
  cdi::install_file(cdi::preload_path(paths), cdi::preload_text());
  for (const Class& each : classes) {
    for (const std::string& device : each.devices) {
      const cdi::DeviceFile file = cdi::file_of(paths, each.name, device);
      cdi::install_file(file.path, file.text);
    }
  }
  for (const Class& each : classes) {
    const std::string path = options.output + "/" + cdi::spec_file(each.name);
    if (each.devices.empty()) {
      std::filesystem::remove(path);
      continue;
    }
    cdi::install_file(path, cdi::spec_of(each, paths).dump() + "\n");
    print(fmt::format("{}: {} devices, fracgpu.dev/{}={} to {}\n", path, each.devices.size(),
                      each.name, each.devices.front(), each.devices.back()));
  }
}

}  // namespace

void add_cdi_command(Command program) {
  Command command =
      program.add_subcommand("cdi", "Offer caps as devices to container engines (CDI)");
  command.require_subcommand();
  command.set_footer(kExamples);

  const auto options = std::make_shared<GenerateOptions>();
  Command generates =
      command.add_subcommand("generate", "Install the specs of the devices, or print them");
  generates.add_option("--output", options->output,
                       "Folder of the specs (/etc/cdi), or - for standard output");
  generates.add_option("--files", options->files,
                       "Folder of what containers get mounted (/var/lib/fracgpu)");
  generates.add_option("--library", options->library, "The library, if it is not found by itself");
  generates.add_option("--command", options->command,
                       "This command, where container engines find it, if that is elsewhere");
  generates.add_option("--memory", options->memory, "Only these sizes: 8gb,12gb").separated_by(',');
  generates.add_option("--fraction", options->fraction, "Only these shares of a GPU: 0.25,0.5")
      .separated_by(',');
  generates
      .add_option("--tenant", options->tenant,
                  "Also these tenants' names: containers of one that share /dev/shm have one cap")
      .separated_by(',');
  generates.set_footer(kExamples);
  generates.set_body([options] {
    generate(*options);
    return kOk;
  });

  Command checks = command.add_subcommand(
      "check-image", "The hook of the devices: refuse images that cannot be capped");
  checks.set_body([] {
    cdi::check_image({std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()});
    return kOk;
  });
}

}  // namespace fracgpu::tools
