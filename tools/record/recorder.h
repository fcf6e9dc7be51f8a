// Records a tenant: a separate thread takes records from its processes' rings and writes them to a
// file.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tools/recording/event.h"

namespace fracgpu::tools {

struct RecordingOptions {
  std::string output{};
  bool force = false;  // replace an existing file, whatever it is
  int frames = 128;    // frames in each call stack; 0: none
  bool attached = false;
  std::string command{};  // the recorded command, as typed
  std::function<std::string(const std::string& key)> device_name{};
};

struct RecordingSummary {
  uint64_t events = 0, dropped = 0;
  size_t processes = 0;
  // Processes that could not be recorded: their number, the first names, and the reasons.
  uint32_t unrecorded = 0;
  std::string unrecorded_names{};
  std::string failure;  // a line, if it ended before the processes did
};

class TenantRecorder {
 public:
  // Starts the recording. Throws std::runtime_error with one line if it cannot.
  TenantRecorder(const std::string& tenant, const RecordingOptions& options);
  ~TenantRecorder();
  TenantRecorder(const TenantRecorder&) = delete;
  TenantRecorder& operator=(const TenantRecorder&) = delete;

  // Takes the remaining records, and completes the file.
  RecordingSummary finish();

  // Whether no process is being recorded at the moment.
  bool is_idle() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fracgpu::tools
