// Chooses GPUs by mode; see partition_mode.h.
#include "tools/launch/partition_mode.h"

#include <fmt/core.h>
#include <strings.h>

#include <algorithm>
#include <map>
#include <stdexcept>

namespace fracgpu::tools {
namespace {

std::string compute_mode(const Gpu& gpu) {
  return gpu.mode.substr(0, gpu.mode.find('/'));
}

// "CPX: GPU 0, 1; SPX: GPU 8".
std::string modes_here(const std::vector<Gpu>& gpus, const std::vector<size_t>& usable) {
  std::map<std::string, std::string> indices;
  for (const size_t place : usable) {
    if (gpus[place].mode.empty()) continue;
    std::string& list = indices[compute_mode(gpus[place])];
    list += fmt::format("{}{}", list.empty() ? "" : ", ", gpus[place].index);
  }
  std::string text;
  for (const auto& [mode, list] : indices) {
    text += fmt::format("{}{}: GPU {}", text.empty() ? "" : "; ", mode, list);
  }
  return text.empty() ? "no GPU to choose from tells a mode" : "there are " + text;
}

}  // namespace

std::vector<size_t> in_partition_mode(const std::string& mode, const std::vector<Gpu>& gpus,
                                      const std::vector<size_t>& usable) {
  if (mode.empty()) return usable;
  const auto is = [&](std::string_view name) { return strcasecmp(mode.c_str(), name.data()) == 0; };
  if (!is("spx") && !is("dpx") && !is("tpx") && !is("qpx") && !is("cpx")) {
    throw std::runtime_error(
        fmt::format("--partition {} is no compute mode; accepted: spx, dpx, tpx, qpx and cpx",
                    fracgpu::quoted(mode).view()));
  }
  std::vector<size_t> found;
  std::ranges::copy_if(usable, std::back_inserter(found), [&](size_t place) {
    return !gpus[place].mode.empty() && is(compute_mode(gpus[place]));
  });
  if (found.empty()) {
    throw std::runtime_error(fmt::format("no GPU is in the mode that --partition names, {}; {}",
                                         mode, modes_here(gpus, usable)));
  }
  return found;
}

}  // namespace fracgpu::tools
