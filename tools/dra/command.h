// `fracgpu dra`: the options of the driver. A separate program, fracgpu-dra, runs the driver, so
// that this command needs no gRPC.
#pragma once

#include <functional>
#include <string>

namespace fracgpu::tools {

class Command;

struct DraOptions {
  std::string node;
  std::string kubeconfig;
  std::string kubelet = "/var/lib/kubelet";
  std::string cdi = "/var/run/cdi";
  std::string files = "/var/lib/fracgpu";
  std::string run = "/run/fracgpu";
  std::string listen;
  int interval_s = 30;
  bool dry_run = false;
};

// `body` returns the exit status.
void add_dra_command(Command program, const std::function<int(const DraOptions&)>& body);

// Replaces this process with the driver, the program fracgpu-dra beside it, with these arguments.
// Throws std::runtime_error with one line.
[[noreturn]] void become_dra_driver(char** arguments);

}  // namespace fracgpu::tools
