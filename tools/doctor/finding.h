// The result of a check of `fracgpu doctor`.
#pragma once

#include <string>
#include <vector>

namespace fracgpu::tools {

struct Finding {
  enum class State { ok, warn, fail } state = State::ok;
  std::string check;     // its name, one word: fields of --json are never renamed
  std::string text;      // the observation
  std::string remedy{};  // what to do, if anything
};

using Findings = std::vector<Finding>;

}  // namespace fracgpu::tools
