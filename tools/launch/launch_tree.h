// Running a command and all its descendants as one tenant.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/cli/exit_status.h"
#include "tools/machine/gpus.h"

namespace fracgpu::tools {

// An error that ends the command with this exit status.
struct RunError : std::runtime_error {
  RunError(int status, const std::string& line) : std::runtime_error(line), status(status) {}
  int status;
};

inline constexpr char kLibrary[] = "libfracgpu.so";

// The path of the library beside the command, as in a build, or in a library folder of the system.
// Throws std::runtime_error with one line if it is missing or cannot be preloaded.
std::string library_path();

// The file for a command's name. Throws RunError if it is missing or not executable.
std::string find_command(const std::string& command);

// Environment variables to set or to remove.
using Changes = std::map<std::string, std::optional<std::string>>;

// The variables that make a process a member of a tenant: the library, the cap, the name, and the
// visible GPUs. A null `visible` leaves the visible GPUs unchanged.
Changes tenant_environment(const std::string& tenant, const std::string& limit,
                           const std::vector<Gpu>& all, const std::vector<Gpu>* visible);

// Runs the command with these changes of the environment and passes signals on to it. Returns the
// command's wait status when it and its last descendant are gone: as a subreaper, this process
// becomes the parent of orphaned descendants. `keep` is a descriptor that the tree inherits, or -1.
// Throws RunError if the command cannot be run.
int run_tree(const std::vector<std::string>& command, const Changes& changes, int keep);

// Ends this process in the same way as the process with this wait status.
[[noreturn]] void end_like(int wait_status);

}  // namespace fracgpu::tools
