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

// For people; `command`: as typed, or empty where only recordings are known.
std::string text_of(const Advice& advice, double margin_percent, const std::string& command);

// For programs.
Json json_of(const Advice& advice);

}  // namespace fracgpu::tools
