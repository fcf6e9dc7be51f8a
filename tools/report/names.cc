// See names.h.
#include "tools/report/names.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

namespace fracgpu::tools::report {
namespace {

using recording::MemoryKind;
using recording::Place;
using recording::Symbols;
using recording::Tables;

struct KindNames {
  const char *key, *name;
};

constexpr KindNames kKinds[recording::kMemoryKinds] = {
    {"linear", "linear"},
    {"managed", "managed"},
    {"pool", "pools, used"},
    {"physical", "physical"},
    {"array", "arrays"},
    {"chunks", "chunks of small allocations"},
    {"reserved", "pools, unused"},
    {"graph", "graphs"},
    {"overhead", "contexts and runtime"},
    {"code", "code"},
    {"imported", "imported"},
    {"unknown", "not recorded"},
};

// What lies between a program and the driver, and says nothing of why it wants memory.
constexpr std::string_view kAllocators[] = {
    "libfracgpu.so",       "libcuda.so", "libcudart.so", "libamdhip64.so",
    "libhsa-runtime64.so", "libc.so",    "libstdc++.so",
};

bool is_allocator(const Place& place) {
  return std::any_of(std::begin(kAllocators), std::end(kAllocators),
                     [&](std::string_view each) { return place.module.starts_with(each); });
}

std::string last_component(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

// Without parameters and what belongs to templates, which make a caller's name longer than a line.
std::string short_name(const std::string& function) {
  // Of Rust's traits, Python's modules and operators these signs are a part.
  if (function.starts_with('<') || function.find("operator") != function.npos) return function;
  std::string name;
  int depth = 0;
  for (size_t at = 0; at < function.size(); ++at) {
    constexpr std::string_view kAnonymous = "(anonymous namespace)::";
    if (depth == 0 && std::string_view(function).substr(at).starts_with(kAnonymous)) {
      at += kAnonymous.size() - 1;
      continue;
    }
    const char c = function[at];
    const bool opens = c == '(' || c == '<', closes = c == ')' || c == '>';
    if (depth == 0 && c == '(') break;
    depth += (opens ? 1 : 0) - (closes ? 1 : 0);
    if (depth == 0 && !closes) name += c;
  }
  while (name.ends_with(' ')) name.pop_back();
  return name.empty() ? function : name;
}

std::string text_of(const Place& place) {
  if (place.file.empty()) return place.function;
  return fmt::format("{} ({}:{})", short_name(place.function), last_component(place.file),
                     place.line);
}

// What runs before a program's own first function.
bool is_start(const std::string& function) {
  return function == "_start" || function.starts_with("__libc_start") ||
         function == "start_thread" || function.starts_with("clone");
}

}  // namespace

std::string device_name(const Tables& tables, uint32_t device) {
  if (device >= tables.devices.size()) return "unknown GPU";
  const recording::DeviceInfo& info = tables.devices[device];
  if (!info.name.empty()) return info.name;
  return info.key.empty() ? fmt::format("GPU {}", device) : info.key;
}

std::string process_name(const Tables& tables, uint32_t process) {
  if (process >= tables.processes.size()) return "unknown process";
  const recording::ProcessInfo& info = tables.processes[process];
  return fmt::format("{} (PID {})", info.command.empty() ? "?" : info.command,
                     info.host_pid != 0 ? info.host_pid : info.pid);
}

const char* kind_name(MemoryKind kind) {
  return kKinds[static_cast<size_t>(kind)].name;
}

const char* kind_key(MemoryKind kind) {
  return kKinds[static_cast<size_t>(kind)].key;
}

std::vector<std::string> stack_names(const Tables& tables, uint32_t stack, Symbols& symbols) {
  std::vector<std::string> names;
  for (const recording::Frame& frame : tables.stacks[stack]) {
    for (const Place& place : symbols.places(tables, frame)) names.push_back(place.function);
  }
  if (names.empty()) names.push_back("(no call stack)");
  std::reverse(names.begin(), names.end());
  return names;
}

std::string place_name(const Tables& tables, uint32_t stack, Symbols& symbols) {
  std::string innermost;
  for (const recording::Frame& frame : tables.stacks[stack]) {
    for (const Place& place : symbols.places(tables, frame)) {
      if (!is_allocator(place)) return text_of(place);
      if (innermost.empty()) innermost = text_of(place);
    }
  }
  return innermost.empty() ? "(no call stack)" : innermost;
}

std::string site_name(const Tables& tables, uint32_t stack, Symbols& symbols) {
  constexpr int kCallers = 3;
  std::string site = place_name(tables, stack, symbols), last;
  int callers = -1;  // the first is the place itself
  for (const recording::Frame& frame : tables.stacks[stack]) {
    for (const Place& place : symbols.places(tables, frame)) {
      const std::string name = short_name(place.function);
      if (is_allocator(place) || is_start(name) || (callers >= 0 && name == last)) continue;
      if (callers >= 0 && callers < kCallers) site += " < " + name;
      ++callers;
      last = name;
    }
  }
  return site;
}

}  // namespace fracgpu::tools::report
