// Readable names for the numbers in a recording.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/recording/event.h"
#include "tools/recording/symbols.h"

namespace fracgpu::tools::report {

// "GPU 0 (NVIDIA H100 80GB)", or its key; "unknown GPU" for kNone.
std::string device_name(const recording::Tables& tables, uint32_t device);

// "python (PID 4711)"; "unknown process" for kNone.
std::string process_name(const recording::Tables& tables, uint32_t process);

// How a process ended, by `bytes` of its last event: "exited", "killed by signal 9".
std::string end_of(uint64_t how);

// For people, a word or two: "linear", "pools, used", "pools, unused".
const char* kind_name(recording::MemoryKind kind);

// For programs: "linear", "pool", "reserved".
const char* kind_key(recording::MemoryKind kind);

// The functions of a stack, the outermost first, as flame graphs need them; only "(no call stack)"
// if none was taken. Inlined functions are separate frames.
std::vector<std::string> stack_names(const recording::Tables& tables, uint32_t stack,
                                     recording::Symbols& symbols);

// A stack in the form in which people look for the reason of an allocation. It leaves out the code
// that every program has between its own functions and the driver (allocators, interpreters) and
// below its first function. The innermost function comes first.
struct SitePath {
  std::string place;                 // "make_buffer (buffers.cc:88)"
  std::string function, module;      // of the place
  std::vector<std::string> callers;  // short names; a recursive function appears once
};
SitePath site_path(const recording::Tables& tables, uint32_t stack, recording::Symbols& symbols);

}  // namespace fracgpu::tools::report
