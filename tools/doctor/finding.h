// What a check of `fracgpu doctor` found.
#pragma once

#include <string>
#include <vector>

namespace fracgpu::tools {

struct Finding {
  enum class State { ok, warn, fail } state = State::ok;
  std::string check;     // which one, a word: fields of --json are never renamed
  std::string text;      // what is so
  std::string remedy{};  // what to do, where something is to be done
};

using Findings = std::vector<Finding>;

}  // namespace fracgpu::tools
