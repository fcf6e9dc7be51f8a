// See symbols.h.
#include "tools/recording/symbols.h"

#include <fmt/core.h>

#include <unordered_map>

#include "tools/recording/python_lines.h"
#include "tools/recording/symbolizer.h"

namespace fracgpu::recording {
namespace {

std::string last_component(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

struct Symbols::State {
  explicit State(std::vector<std::string> roots)
      : python_lines(roots), symbolizer(std::move(roots)) {}

  // A name by a just-in-time compiler. CPython's names are "py::function:/path/of/file.py".
  std::string jit_name(const std::string& name) {
    constexpr std::string_view kPython = "py::";
    const size_t colon = name.find(':', kPython.size());
    if (!name.starts_with(kPython) || colon == name.npos) return name;
    const std::string function = name.substr(kPython.size(), colon - kPython.size());
    const std::string file = name.substr(colon + 1);
    const int line = python_lines.line_of(file, function);
    return fmt::format("{} ({}{})", function, last_component(file),
                       line == 0 ? "" : fmt::format(":{}", line));
  }

  std::vector<Place> look_up(const Tables& tables, const Frame& frame) {
    const bool known = frame.module < tables.modules.size();
    const ModuleInfo* const module = known ? &tables.modules[frame.module] : nullptr;
    const std::string file =
        module == nullptr || module->path.empty() ? "[anonymous]" : last_component(module->path);
    if (frame.name != 0 && frame.name < tables.texts.size() && !tables.texts[frame.name].empty()) {
      return {{jit_name(tables.texts[frame.name]), "", 0, file}};
    }
    std::vector<Place> places;
    if (module != nullptr) places = symbolizer.look_up(*module, frame.offset);
    if (places.empty()) places.push_back({fmt::format("{}+{:#x}", file, frame.offset), "", 0, ""});
    for (Place& each : places) each.module = file;
    return places;
  }

  PythonLines python_lines;
  // The key is the module's identity, not its number, because compared recordings have different
  // numbers.
  Symbolizer symbolizer;
  std::unordered_map<std::string, std::unordered_map<uint64_t, std::vector<Place>>> known{};
};

Symbols::Symbols(std::vector<std::string> roots)
    : state_(std::make_unique<State>(std::move(roots))) {}

Symbols::~Symbols() = default;

const std::vector<Place>& Symbols::places(const Tables& tables, const Frame& frame) {
  std::string whose;
  if (frame.name != 0 && frame.name < tables.texts.size()) whose = "=" + tables.texts[frame.name];
  if (frame.module < tables.modules.size()) {
    const ModuleInfo& module = tables.modules[frame.module];
    whose += module.path + '\0' + module.build_id;
  }
  auto& places = state_->known[whose];
  const auto found = places.find(frame.offset);
  if (found != places.end()) return found->second;
  return places.emplace(frame.offset, state_->look_up(tables, frame)).first->second;
}

}  // namespace fracgpu::recording
