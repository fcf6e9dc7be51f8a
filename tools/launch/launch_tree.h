// Running a command and all its descendants as one tenant.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/cli/exit_status.h"
#include "tools/machine/gpus.h"

namespace fracgpu::tools {

// An end with this exit status.
struct RunError : std::runtime_error {
  RunError(int status, const std::string& line) : std::runtime_error(line), status(status) {}
  int status;
};

inline constexpr char kLibrary[] = "libfracgpu.so";

// The library beside the command, as in a build, or where this or another system keeps its
// libraries. Throws std::runtime_error with one line when it is not there or cannot be preloaded.
std::string library_path();

// The file that a command's name means. Throws RunError when it is missing or not executable.
std::string find_command(const std::string& command);

// Variables to set, or to remove.
using Changes = std::map<std::string, std::optional<std::string>>;

// What makes a process a member of a tenant: the library, the cap, the name, and the GPUs to see
// (`visible` none: as they are).
Changes tenant_environment(const std::string& tenant, const std::string& limit,
                           const std::vector<Gpu>& all, const std::vector<Gpu>* visible);

// Runs the command with these changes of the environment, passes signals on to it, and returns its
// wait status when it and its last descendant are gone: as a subreaper, this process is the parent
// of descendants that lost theirs. `keep` is a descriptor for the tree to inherit, or -1.
// Throws RunError when the command cannot be run.
int run_tree(const std::vector<std::string>& command, const Changes& changes, int keep);

// Ends this process as that one ended.
[[noreturn]] void end_like(int wait_status);

}  // namespace fracgpu::tools
