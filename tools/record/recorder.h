// Records a tenant: takes out of its processes' rings, in a thread of its own, what goes into a
// file.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tools/recording/event.h"

namespace fracgpu::tools {

struct RecordingOptions {
  std::string output{};
  bool force = false;  // replace what is there, whatever it is
  int frames = 128;    // of call stacks; 0: none
  bool attached = false;
  std::string command{};  // what is recorded, as typed
  std::function<std::string(const std::string& key)> device_name{};
};

struct RecordingSummary {
  uint64_t events = 0, dropped = 0;
  size_t processes = 0;
  // What could not be recorded: how many processes, who the first were, and why.
  uint32_t unrecorded = 0;
  std::string unrecorded_names{};
  std::string failure;  // a line, where it ended before the processes did
};

class TenantRecorder {
 public:
  // Begins. Throws std::runtime_error with one line when it cannot.
  TenantRecorder(const std::string& tenant, const RecordingOptions& options);
  ~TenantRecorder();
  TenantRecorder(const TenantRecorder&) = delete;
  TenantRecorder& operator=(const TenantRecorder&) = delete;

  // Takes what is left, and completes the file.
  RecordingSummary finish();

  // Whether no process is being recorded just now.
  bool is_idle() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fracgpu::tools
