// See python_frames.h.
#include "tools/report/python_frames.h"

#include <algorithm>

namespace fracgpu::tools::report {

bool keep_python_frames(recording::Tables& tables) {
  const auto is_python = [&](const recording::Frame& frame) {
    return frame.name < tables.texts.size() && tables.texts[frame.name].starts_with("py::");
  };
  const bool any = std::any_of(tables.stacks.begin(), tables.stacks.end(), [&](const auto& stack) {
    return std::any_of(stack.begin(), stack.end(), is_python);
  });
  if (!any) return false;
  recording::Frame other;
  other.name = static_cast<uint32_t>(tables.texts.size());
  for (recording::Stack& stack : tables.stacks) {
    if (stack.empty()) continue;
    std::erase_if(stack, [&](const recording::Frame& frame) { return !is_python(frame); });
    if (stack.empty()) stack.push_back(other);
  }
  tables.texts.emplace_back("(not from Python)");
  return true;
}

}  // namespace fracgpu::tools::report
