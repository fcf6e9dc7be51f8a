// Runs a command and records all that it and its descendants do with GPU memory.
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

// Throws RunError where the command cannot be run or recorded. Inside a capped launch or container
// it joins that tenant, whose other processes are not recorded unless they start meanwhile.
RecordedEnd run_recorded(const RecordedLaunch& launch);

// "ran 'python train.py'": the words, as a shell would want them.
std::string command_text(const std::vector<std::string>& words);

// Tells on stderr what was recorded, and how to look at it.
void tell(const RecordingSummary& summary, const std::string& path);

}  // namespace fracgpu::tools
