// The cap that this process is under already: whatever it launches must stay under it.
//
// A launch of `fracgpu run` or `fracgpu queue` is recognised by its lock in the claim table, which
// `run` and, unless it was closed, every process of the tree have open; so neither a name nor a
// variable hides it. It is not seen from a PID namespace or a user that may not look at `run`;
// then, and in a container, the cap is that of the environment, if the library is loaded here.
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
  std::string claim_table;  // the path of the one that it is in; empty: none
  std::string asked;        // as it stands there
  // In bytes: UINT64_MAX where there is none, nothing for a GPU that it must not use.
  std::function<std::optional<uint64_t>(const Gpu&)> on;
  std::optional<std::string> limit{};  // FRACGPU_MEMORY_LIMIT for it; none: as it is
  bool may_be_lowered = false;         // by a launch inside
};

// Throws std::runtime_error with one line where there is an outer cap that cannot be told.
std::optional<OuterCap> find_outer_cap(const std::vector<Gpu>& gpus);

// What a launch inside gets. Throws std::runtime_error with one line for what would leave the outer
// cap, or asks for a lower one, which would not be kept.
struct Inside {
  std::vector<Gpu> gpus;  // those that it may use
  bool hides_others;      // it asked for certain ones
  std::string notice{};   // a line for the user; empty: none
};
Inside place_inside(const OuterCap& outer, const std::string& tenant, const Request& request);

}  // namespace fracgpu::tools
