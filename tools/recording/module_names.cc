#include "tools/recording/module_names.h"

#include "tools/recording/demangle.h"

namespace fracgpu::recording {
namespace {

// Template names may be too long to read, and damaged names may exceed memory.
constexpr size_t kLongest = 4096;

void shorten(std::string& text) {
  if (text.size() > kLongest) text.replace(kLongest, text.npos, "...");
}

}  // namespace

ModuleNames::ModuleNames(const ModuleInfo& module, const std::vector<std::string>& roots,
                         bool debug)
    : own_(find_module(module, roots)) {
  // A recording from another machine may be read with its debug files alone.
  if (debug && !has_debug_lines(own_)) debug_ = find_debug_file(module.build_id, roots);
  symbols_.add(debug_);
  symbols_.add(own_);
  symbols_.sort();
  if (debug) lines_ = std::make_unique<DebugLines>(debug_ ? debug_ : own_);
}

std::vector<Place> ModuleNames::at(uint64_t address) {
  std::vector<Place> places;
  if (lines_) places = lines_->at(address);
  const std::string linked = symbols_.at(address), symbol = demangle(linked);
  if (places.empty() && !symbol.empty()) places.push_back({symbol, "", 0, ""});
  for (Place& each : places) each.function = demangle(each.function);
  // For a function that only its own file can call, only the symbol shows its scope. For assembly
  // code, possibly only the line is known.
  if (!places.empty() && symbol.size() > places.back().function.size() && symbol != linked) {
    places.back().function = symbol;
  } else if (!places.empty() && places.back().function.empty()) {
    places.back().function = symbol;
  }
  for (Place& each : places) {
    shorten(each.function);
    shorten(each.file);
  }
  std::erase_if(places, [](const Place& each) { return each.function.empty(); });
  return places;
}

}  // namespace fracgpu::recording
