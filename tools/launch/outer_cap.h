// The cap that this process is already under. All its launches must stay under it.
//
// A launch of `fracgpu run` or `fracgpu queue` is recognised by its lock in the claim table. `run`
// and every process of the tree have the table open, unless they closed it. So neither a name nor a
// variable hides the launch. It is not visible from another PID namespace, or to a user who may not
// inspect `run`. In these cases, and in a container, the environment gives the cap, if the library
// is loaded here.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/claims/claim_table.h"
#include "tools/launch/request.h"

namespace fracgpu::tools {

struct OuterCap {
  std::string tenant;
  std::string claim_table;  // the path of its table; empty: none
  std::string asked;        // the request in that table
  // In bytes: UINT64_MAX if there is no cap; none for a GPU that it must not use.
  std::function<std::optional<uint64_t>(const Gpu&)> on;
  std::optional<std::string> limit{};  // FRACGPU_MEMORY_LIMIT for it; none: unchanged
  bool may_be_lowered = false;         // whether a launch inside may lower it
};

// Throws std::runtime_error with one line if there is an outer cap that cannot be determined.
std::optional<OuterCap> find_outer_cap(const std::vector<Gpu>& gpus);

// The result of a launch inside the outer cap. Throws std::runtime_error with one line if the
// launch would leave the outer cap, or if it requests a lower cap, which could not be kept.
struct Inside {
  std::vector<Gpu> gpus;  // the GPUs that it may use
  bool hides_others;      // it requested certain GPUs
  std::string notice{};   // a line for the user; empty: none
};
Inside place_inside(const OuterCap& outer, const std::string& tenant, const Request& request);

}  // namespace fracgpu::tools
