// Writes a recording; the format is in format.h.
#pragma once

#include <memory>
#include <string>

#include "tools/recording/event.h"

namespace fracgpu::recording {

// Used by one thread. Every function throws std::runtime_error with one line (which file, why, what
// to do) when the file cannot be written; what was written until then stays readable.
class Writer {
 public:
  // A file that is there and not empty is replaced only when `force` is set.
  Writer(const std::string& path, const Header& header, bool force = false);
  ~Writer();  // without `finish` the file is one that was cut off
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Each returns the index by which events name it. Texts, modules and stacks that are there
  // already keep theirs. Where a table is full (format.h) it is kNone, and 0 for texts and stacks.
  uint32_t add_process(const ProcessInfo& process);
  uint32_t add_device(const DeviceInfo& device);
  uint32_t add_module(const ModuleInfo& module);
  uint32_t add_stack(const Stack& stack);
  uint32_t add_text(const std::string& text);

  void add(const Event& event);

  // Makes all that was added readable to others, and safe from this process's death.
  void flush();
  // The recording is complete.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fracgpu::recording
