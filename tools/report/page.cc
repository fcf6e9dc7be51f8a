// See page.h.
#include "tools/report/page.h"

#include <string_view>

#include "tools/report/page_data.h"

// Defined in page_files.S.
extern "C" {
extern const char page_html[], page_css[], page_values_js[], page_colors_js[], page_timeline_js[],
    page_timeline_drawing_js[], page_timeline_input_js[], page_flame_tree_js[], page_flame_js[],
    page_columns_js[], page_tables_js[], page_start_js[];
}

namespace fracgpu::tools::report {
namespace {

// In the order of their dependencies.
constexpr const char* kScripts[] = {
    page_values_js,         page_colors_js,     page_timeline_js, page_timeline_drawing_js,
    page_timeline_input_js, page_flame_tree_js, page_flame_js,    page_columns_js,
    page_tables_js,         page_start_js,
};

// A recorded name must not end the HTML element around it. JSON can also write '<' as an escape.
std::string without_tags(const std::string& json) {
  std::string text;
  text.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace

std::string page(const Analysis& analysis, recording::Symbols& symbols, const Naming& naming) {
  std::string scripts;
  for (const char* each : kScripts) scripts += each;
  const std::pair<std::string_view, std::string> parts[] = {
      {"{{style}}", page_css},
      {"{{recording}}", without_tags(page_data(analysis, symbols, naming).dump_ascii(-1))},
      {"{{script}}", scripts},
  };
  const std::string_view frame = page_html;
  std::string text;
  size_t at = 0;
  for (const auto& [mark, content] : parts) {
    const size_t place = frame.find(mark, at);
    text += frame.substr(at, place - at);
    text += content;
    at = place + mark.size();
  }
  return text += frame.substr(at);
}

}  // namespace fracgpu::tools::report
