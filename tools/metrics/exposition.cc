// Writes Prometheus' text format; see exposition.h.
#include "tools/metrics/exposition.h"

#include <fmt/core.h>

namespace fracgpu::tools {
namespace {

// Escapes a label's value. Characters outside ASCII became '?' when they were read.
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
  add_sample(labels, std::to_string(value));
}

void Family::add(const Labels& labels, double value) {
  add_sample(labels, fmt::format("{}", value));
}

void Family::add_sample(const Labels& labels, const std::string& value) {
  std::string list;
  for (const auto& [name, text] : labels) {
    list += fmt::format("{}{}=\"{}\"", list.empty() ? "" : ",", name, escaped(text));
  }
  samples_.emplace(list.empty() ? "" : "{" + list + "}", value);
}

std::string Family::text() const {
  std::string text = fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name_, help_,
                                 type_ == Type::counter ? "counter" : "gauge");
  for (const auto& [labels, value] : samples_) {
    text += fmt::format("{}{} {}\n", name_, labels, value);
  }
  return text;
}

}  // namespace fracgpu::tools
