// What is said of one GPU, and how it is told.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tools/advise/needs.h"
#include "tools/advise/slices.h"
#include "tools/advise/trial.h"
#include "tools/cli/json.h"

namespace fracgpu::tools {

struct Advice {
  Need need;
  std::optional<Spread> spread;  // of several recordings
  uint64_t cap = 0;
  std::optional<Slices> slices;  // none where the GPU is not on this machine
  std::optional<Found> found;
};

// For people; `command`: as typed, or empty where only recordings are known. `alone`: no other GPU
// was used, so that one slice or cap is all that a command needs.
std::string text_of(const Advice& advice, double margin_percent, const std::string& command,
                    bool alone);

// "-- ./job", as it stands at the end of a command line that is advised.
std::string command_words(const std::string& command);

// For programs.
Json json_of(const Advice& advice);

}  // namespace fracgpu::tools
