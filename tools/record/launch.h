// Runs a command and records the GPU memory of the command and all its descendants.
#pragma once

#include <string>
#include <vector>

#include "tools/record/recorder.h"

namespace fracgpu::tools {

struct RecordedLaunch {
  std::vector<std::string> command;
  std::string
      memory;  // the cap, as `run --memory`; empty: that of the environment, or all there is
  RecordingOptions recording;
};

struct RecordedEnd {
  int wait_status = 0;  // the command's
  RecordingSummary summary;
};

// Throws RunError if the command cannot be run or recorded. Inside a capped launch or container, it
// joins that tenant. The tenant's other processes are not recorded unless they start meanwhile.
RecordedEnd run_recorded(const RecordedLaunch& launch);

// The words as a shell command: "python train.py".
std::string command_text(const std::vector<std::string>& words);

// Prints to stderr what was recorded, and how to view it.
void tell(const RecordingSummary& summary, const std::string& path);

}  // namespace fracgpu::tools
