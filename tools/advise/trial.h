// Runs a command under caps, to see with how little it still passes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/machine/gpus.h"

namespace fracgpu::tools {

struct TrialOptions {
  std::vector<std::string> command;
  std::string success;   // a shell command that judges; empty: the exit status does
  double timeout_s = 0;  // after which it has failed
};

struct Trial {
  bool passed = false;
  int status = 0;  // the command's, as a shell has it
  double seconds = 0;
  bool timed_out = false;
};

// One run under a limit as FRACGPU_MEMORY_LIMIT has it. What it prints goes to a file that
// `success` finds as $FRACGPU_OUTPUT.
Trial run_trial(const TrialOptions& options, const std::string& limit);

struct Search {
  uint64_t least = 0, most = 0;  // bytes: at `most` it is thought to pass
  uint64_t step = 0;             // as close as it has to come
};
struct Found {
  uint64_t bytes = 0;  // the smallest that passed; 0: none did
  double seconds = 0;  // that it took there
  int runs = 0;
};

// Halves what is between a cap that fails and one that passes, until they are one step apart.
// `tell(bytes, trial)` is called after each run.
Found find_smallest(const Search& search, const std::function<Trial(uint64_t bytes)>& run,
                    const std::function<void(uint64_t bytes, const Trial&)>& tell);

}  // namespace fracgpu::tools
