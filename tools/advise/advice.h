// The advice for one GPU, as text and as JSON.
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
  std::optional<Spread> spread;  // over several recordings
  uint64_t cap = 0;
  std::optional<Slices> slices;  // none if the GPU is not on this machine
  std::optional<Found> found;
};

// The advice as text. `command` is the command as typed, or empty if only recordings are known.
// `launches`: which kinds of launch are enough for the command. It must use no other GPU, and must
// find its slice as its first GPU.
struct Launches {
  bool cap = false, slice = false;
};
std::string text_of(const Advice& advice, double margin_percent, const std::string& command,
                    Launches launches);

// "-- ./job", the end of the command line in the advice.
std::string command_words(const std::string& command);

// The advice as JSON.
Json json_of(const Advice& advice);

}  // namespace fracgpu::tools
