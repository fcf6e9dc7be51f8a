// Writes Prometheus' text format; see exposition.h.
#include "tools/metrics/exposition.h"

#include <fmt/format.h>

namespace fracgpu::tools {
namespace {

// As a label's value must be written. What is no ASCII was made '?' when it was read.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

void Family::add(const Labels& labels, uint64_t value) {
  add_line(labels, std::to_string(value));
}

void Family::add(const Labels& labels, double value) {
  add_line(labels, fmt::format("{}", value));
}

void Family::add_line(const Labels& labels, const std::string& value) {
  std::string list;
  for (const auto& [name, text] : labels) {
    list += fmt::format("{}{}=\"{}\"", list.empty() ? "" : ",", name, escaped(text));
  }
  lines_ += labels.empty() ? fmt::format("{} {}\n", name_, value)
                           : fmt::format("{}{{{}}} {}\n", name_, list, value);
}

std::string Family::text() const {
  return fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{3}", name_, help_,
                     type_ == Type::counter ? "counter" : "gauge", lines_);
}

}  // namespace fracgpu::tools
