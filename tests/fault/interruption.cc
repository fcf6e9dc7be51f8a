// Sets up interruptions and chooses where; see world.h.
#include <limits.h>

#include <cstdlib>
#include <unordered_map>

#include "tests/fault/world.h"

namespace fracgpu::fault {
namespace {

// A trace this short is interrupted everywhere.
constexpr size_t kShort = 500;

}  // namespace

Interruption::Interruption(const Operation& operation) {
  if (operation.before) operation.before(world);
  child = std::make_unique<Stepped>(
      [&] {
        if (operation.prepare) operation.prepare(world);
      },
      [&] { operation.run(world); });
}

std::string test_name(const Operation& operation) {
  std::string name = operation.name;
  for (char& c : name) {
    if (c == ' ') c = '_';
  }
  return name;
}

bool is_campaign() {
  return getenv("FRACGPU_CAMPAIGN") != nullptr;
}

std::vector<size_t> points_of(const Trace& trace, unsigned passes) {
  constexpr size_t kLoops = 10'000;
  if (is_campaign()) passes = trace.size() < kLoops ? UINT_MAX : 50;
  std::vector<size_t> points;
  std::unordered_map<uint64_t, unsigned> seen;
  for (size_t i = 0; i < trace.size(); ++i) {
    const bool beside_call = trace.is_system_call[i] || (i > 0 && trace.is_system_call[i - 1]);
    if (trace.size() < kShort || beside_call || seen[trace.address[i]]++ < passes) {
      points.push_back(i);
    }
  }
  points.push_back(trace.size());
  return points;
}

}  // namespace fracgpu::fault
