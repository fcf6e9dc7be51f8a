// The call stacks of a page, as one tree, because most of them share most of their frames.
// page/flame_tree.js reads it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "tools/cli/json.h"
#include "tools/recording/symbols.h"

namespace fracgpu::tools::report {

class PageStacks {
 public:
  PageStacks(const recording::Tables& tables, recording::Symbols& symbols)
      : tables_(tables), symbols_(symbols) {}

  // The node of a stack's innermost function; 0 if there is none.
  uint32_t node(uint32_t stack);

  // For each node, its caller's node and its frame.
  Json nodes() const;
  // For each frame, the numbers of the texts of its function, place and module.
  Json frames() const;
  Json texts() const { return Json::array(texts_); }

 private:
  uint32_t text(const std::string& text);
  uint32_t frame(const recording::Place& place);

  const recording::Tables& tables_;
  recording::Symbols& symbols_;
  std::unordered_map<uint32_t, uint32_t> of_stack_{};
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> node_of_{};  // by caller and frame
  std::vector<std::pair<uint32_t, uint32_t>> nodes_{{0, 0}};
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, uint32_t> frame_of_{};
  std::vector<std::tuple<uint32_t, uint32_t, uint32_t>> frames_{};
  std::unordered_map<std::string, uint32_t> text_of_{};
  std::vector<std::string> texts_{};
};

}  // namespace fracgpu::tools::report
