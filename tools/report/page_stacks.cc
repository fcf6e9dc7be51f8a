#include "tools/report/page_stacks.h"

#include <fmt/core.h>

namespace fracgpu::tools::report {
namespace {

std::string place_of(const recording::Place& place) {
  if (place.line == 0) return place.file;
  return fmt::format("{}:{}", place.file, place.line);
}

}  // namespace

uint32_t PageStacks::text(const std::string& text) {
  const auto [found, is_new] = text_of_.try_emplace(text, static_cast<uint32_t>(texts_.size()));
  if (is_new) texts_.push_back(text);
  return found->second;
}

uint32_t PageStacks::frame(const recording::Place& place) {
  const std::tuple key = {text(place.function), text(place_of(place)), text(place.module)};
  const auto [found, is_new] = frame_of_.try_emplace(key, static_cast<uint32_t>(frames_.size()));
  if (is_new) frames_.push_back(key);
  return found->second;
}

uint32_t PageStacks::node(uint32_t stack) {
  const auto [found, is_new] = of_stack_.try_emplace(stack, 0);
  if (!is_new || stack >= tables_.stacks.size()) return found->second;
  uint32_t node = 0;
  const recording::Stack& frames = tables_.stacks[stack];
  for (auto each = frames.rbegin(); each != frames.rend(); ++each) {
    const std::vector<recording::Place>& places = symbols_.places(tables_, *each);
    for (auto place = places.rbegin(); place != places.rend(); ++place) {
      const std::pair key = {node, frame(*place)};
      const auto [child, is_first] = node_of_.try_emplace(key, nodes_.size());
      if (is_first) nodes_.push_back(key);
      node = child->second;
    }
  }
  return found->second = node;
}

Json PageStacks::nodes() const {
  Json list = Json::array();
  for (const auto& [caller, frame] : nodes_) {
    list.push_back(caller);
    list.push_back(frame);
  }
  return list;
}

Json PageStacks::frames() const {
  Json list = Json::array();
  for (const auto& [function, place, module] : frames_) {
    list.push_back(function);
    list.push_back(place);
    list.push_back(module);
  }
  return list;
}

}  // namespace fracgpu::tools::report
