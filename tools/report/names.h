// What people call the things that a recording numbers.
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

// A word or two: "linear", "pools, used", "pools, unused".
const char* kind_name(recording::MemoryKind kind);

// For programs: "linear", "pool", "reserved".
const char* kind_key(recording::MemoryKind kind);

// The functions of a stack, the outermost first, as flame graphs want them; "(no call stack)" alone
// where none was taken. Inlined functions are frames of their own.
std::vector<std::string> stack_names(const recording::Tables& tables, uint32_t stack,
                                     recording::Symbols& symbols);

// The innermost function that is no allocator's, and where it stands: "train_step (train.cc:88)".
std::string place_name(const recording::Tables& tables, uint32_t stack,
                       recording::Symbols& symbols);

// The same with who called it, since one helper may serve many: "make_buffer (buffers.cc:88) <
// train_step < train < main".
std::string site_name(const recording::Tables& tables, uint32_t stack, recording::Symbols& symbols);

}  // namespace fracgpu::tools::report
