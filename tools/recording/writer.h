// Writes a recording; format.h describes the format.
#pragma once

#include <memory>
#include <string>

#include "tools/recording/event.h"

namespace fracgpu::recording {

// Used by one thread. Every function throws std::runtime_error with one line (which file, why, what
// to do) if the file cannot be written. Data written before stays readable.
class Writer {
 public:
  // Replaces a non-empty file only if `force` is set.
  Writer(const std::string& path, const Header& header, bool force = false);
  ~Writer();  // without `finish`, the file counts as cut off
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Each returns the index that events use. Existing texts, modules and stacks keep their index. If
  // a table is full (format.h), the index is kNone, or 0 for texts and stacks.
  uint32_t add_process(const ProcessInfo& process);
  uint32_t add_device(const DeviceInfo& device);
  uint32_t add_module(const ModuleInfo& module);
  uint32_t add_stack(const Stack& stack);
  uint32_t add_text(const std::string& text);

  void add(const Event& event);

  // Makes all added data readable to others, and safe if this process dies.
  void flush();
  // Completes the recording.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fracgpu::recording
