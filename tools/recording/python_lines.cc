// See python_lines.h.
#include "tools/recording/python_lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <string_view>
#include <utility>

#include "tools/cli/descriptor.h"

namespace fracgpu::recording {
namespace {

// The checks are needed because a recording may name any file.
std::optional<std::string> read_source(const std::string& path) {
  constexpr off_t kMost = 4 << 20;
  const tools::Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status = {};
  if (file.get() < 0 || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_size > kMost) {
    return {};
  }
  std::string text(static_cast<size_t>(status.st_size), '\0');
  const ssize_t size = pread(file.get(), text.data(), text.size(), 0);
  if (size < 0) return {};
  text.resize(static_cast<size_t>(size));
  return text;
}

struct Scope {
  size_t indent;
  std::string name;  // the prefix of functions in it
};

// The name after the keyword, if the line begins with it.
std::string_view name_behind(std::string_view line, std::string_view keyword) {
  if (!line.starts_with(keyword)) return {};
  line.remove_prefix(keyword.size());
  const size_t begin = std::min(line.find_first_not_of(' '), line.size());
  const size_t end = std::min(line.find_first_of(" (:[", begin), line.size());
  return line.substr(begin, end - begin);
}

// Reads lines only, so a line of a multi-line string may count as a function.
std::map<std::string, int> functions_of(std::string_view text) {
  std::map<std::string, int> functions;
  std::vector<Scope> scopes;
  int number = 0;
  while (!text.empty()) {
    ++number;
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t indent = line.find_first_not_of(" \t");
    if (indent == line.npos || line[indent] == '#') continue;
    line.remove_prefix(indent);
    if (line.starts_with("async ")) line.remove_prefix(6);
    const std::string_view function = name_behind(line, "def ");
    const std::string_view type = name_behind(line, "class ");
    if (function.empty() && type.empty()) continue;
    while (!scopes.empty() && scopes.back().indent >= indent) scopes.pop_back();
    std::string name = scopes.empty() ? "" : scopes.back().name;
    name += function.empty() ? type : function;
    if (!function.empty()) functions.try_emplace(name, number);
    scopes.push_back({indent, name + (function.empty() ? "." : ".<locals>.")});
  }
  return functions;
}

}  // namespace

int PythonLines::line_of(const std::string& file, const std::string& function) {
  const auto [place, is_new] = known_.try_emplace(file);
  if (is_new && file.starts_with('/')) {
    std::optional<std::string> text;
    for (const std::string& root : roots_) {
      if (!text) text = read_source(root + file);
    }
    if (!text) text = read_source(file);
    if (text) place->second = functions_of(*text);
  }
  const auto found = place->second.find(function);
  return found != place->second.end() ? found->second : 0;
}

}  // namespace fracgpu::recording
