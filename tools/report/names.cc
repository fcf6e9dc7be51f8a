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

// Code between a program and the driver, which does not show why the program wants memory: whole
// files, functions, and modules of Python. perf's names of Python functions have the module after
// the function.
constexpr std::string_view kModules[] = {
    "libfracgpu.so", "libcuda.so", "libcudart.so", "libamdhip64.so", "libhsa-runtime64.so",
    "libc.so",       "libm.so",    "libstdc++.so", "libgcc_s.so",    "libpthread.so",
    "ld-linux",      "libffi.so",  "_ctypes.",     "_cffi_backend.",
};
constexpr std::string_view kInterpreters[] = {
    "libpython", "python2", "python3", "libnode.so", "libjvm.so", "libruby",
};
constexpr std::string_view kFunctions[] = {
    "std::",
    "__gnu_cxx::",
    "rmm::",
    "thrust::",
    "cub::",
    "c10::cuda::CUDACachingAllocator",
    "c10::hip::HIPCachingAllocator",
    "c10::CachingDeviceAllocator",
    "c10::StorageImpl",
    "at::detail::empty_",
    "at::native::empty_",
    "_PyEval_",
    "PyEval_",
    "PyObject_",
    "_PyObject_",
};
constexpr std::string_view kPythonFiles[] = {
    "/ctypes/__init__.py", "/cupy/cuda/memory", "/numba/cuda/cudadrv/", "/rmm/", "/pycuda/",
    ":<frozen ",
};

bool is_of_interpreter(const Place& place) {
  return std::any_of(std::begin(kInterpreters), std::end(kInterpreters),
                     [&](std::string_view each) { return place.module.starts_with(each); });
}

// `name` is the name that a just-in-time compiler gave, with the whole path of Python's file.
bool is_between(const Place& place, std::string_view name) {
  const auto begins = [](std::string_view text) {
    return [text](std::string_view each) { return text.starts_with(each); };
  };
  return std::any_of(std::begin(kModules), std::end(kModules), begins(place.module)) ||
         is_of_interpreter(place) ||
         std::any_of(std::begin(kFunctions), std::end(kFunctions), begins(place.function)) ||
         (name.starts_with("py::") &&
          std::any_of(std::begin(kPythonFiles), std::end(kPythonFiles),
                      [&](std::string_view each) { return name.find(each) != name.npos; }));
}

std::string last_component(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

// Drops parameters and template arguments, which make a caller's name longer than a line.
std::string short_name(const std::string& function) {
  // These signs are a part of the names of Rust's traits, Python's modules and operators.
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

// Functions that run before a program's own first function.
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

std::string end_of(uint64_t how) {
  if (how == recording::kExited) return "exited";
  if (how == recording::kByExitCall) return "ended by _exit";
  if (how == recording::kByExec) return "became another program (exec)";
  if (how > recording::kBySignal) {
    return fmt::format("killed by signal {}", how - recording::kBySignal);
  }
  return "ended without exit handlers (_exit or a signal)";
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

SitePath site_path(const Tables& tables, uint32_t stack, Symbols& symbols) {
  SitePath path, innermost, interpreter;
  std::string last;
  const auto begin = [](SitePath& at, const Place& place) {
    at.place = text_of(place);
    at.function = place.file.empty() ? place.function : short_name(place.function);
    at.module = place.module;
  };
  for (const recording::Frame& frame : tables.stacks[stack]) {
    std::string_view given;
    if (frame.name < tables.texts.size()) given = tables.texts[frame.name];
    for (const Place& place : symbols.places(tables, frame)) {
      if (innermost.place.empty()) begin(innermost, place);
      if (interpreter.place.empty() && is_of_interpreter(place)) begin(interpreter, place);
      const std::string name = short_name(place.function);
      if (is_between(place, given) || is_start(name) || (!path.place.empty() && name == last))
        continue;
      if (path.place.empty()) {
        begin(path, place);
      } else {
        path.callers.push_back(name);
      }
      last = name;
    }
  }
  if (innermost.place.empty()) innermost.place = innermost.function = "(no call stack)";
  return !path.place.empty() ? path : !interpreter.place.empty() ? interpreter : innermost;
}

}  // namespace fracgpu::tools::report
