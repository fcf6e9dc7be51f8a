// Runs a command under caps, to find the smallest cap under which it passes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/machine/gpus.h"

namespace fracgpu::tools {

struct TrialOptions {
  std::vector<std::string> command;
  std::string success;   // a shell command that checks the run; empty: the exit status
  double timeout_s = 0;  // the run fails after this time
};

struct Trial {
  bool passed = false;
  int status = 0;  // the command's, as a shell reports it
  double seconds = 0;
  bool timed_out = false;
};

// One run under a limit in the form of FRACGPU_MEMORY_LIMIT. The command's output goes to a file,
// which `success` gets as $FRACGPU_OUTPUT.
Trial run_trial(const TrialOptions& options, const std::string& limit);

struct Search {
  uint64_t least = 0, most = 0;  // bytes; the command is expected to pass at `most`
  uint64_t step = 0;             // the precision of the search
};
struct Found {
  uint64_t bytes = 0;  // the smallest that passed; 0: none did
  double seconds = 0;  // of the run with `bytes`
  int runs = 0;
};

// Halves the gap between a failing and a passing cap until they are one step apart. Calls
// `tell(bytes, trial)` after each run.
Found find_smallest(const Search& search, const std::function<Trial(uint64_t bytes)>& run,
                    const std::function<void(uint64_t bytes, const Trial&)>& tell);

}  // namespace fracgpu::tools
