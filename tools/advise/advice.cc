// See advice.h.
#include "tools/advise/advice.h"

#include <fmt/core.h>

#include <algorithm>

#include "tools/report/units.h"
#include "tools/ui/drawing.h"

namespace fracgpu::tools {
namespace {

std::string amount(uint64_t cap) {
  constexpr uint64_t kMiB = 1u << 20, kGiB = 1u << 30;
  return cap % kGiB == 0 ? fmt::format("{}GiB", cap / kGiB) : fmt::format("{}MiB", cap / kMiB);
}

std::string seconds_text(uint64_t ns) {
  return fmt::format("{:.1f} s", static_cast<double>(ns) / 1e9);
}

void append(std::string& text, const char* name, const std::string& what,
            const std::string& how = "") {
  text += fmt::format("  {:<7} {}{}{}\n", name, what, how.empty() ? "" : ": ", how);
}

}  // namespace

std::string command_words(const std::string& command) {
  // A long command would hide the advice.
  constexpr size_t kShown = 40;
  return "-- " + (!command.empty() && command.size() <= kShown ? command : "CMD");
}

std::string text_of(const Advice& advice, double margin_percent, const std::string& command,
                    Launches launches) {
  const Need& need = advice.need;
  const auto how = [&](bool is_enough, const std::string& options) {
    return is_enough ? fmt::format("fracgpu run {} {}", options, command_words(command)) : "";
  };
  std::string text = need.name + ", " + bytes(need.physical) + "\n";
  if (advice.spread) {
    append(text, "runs",
           fmt::format("{}; needed {} to {}, half of them {} or less, 99 of 100 {} or less",
                       advice.spread->runs, bytes(advice.spread->least), bytes(advice.spread->most),
                       bytes(advice.spread->median), bytes(advice.spread->p99)));
  }
  append(text, "needed",
         fmt::format("{} at {}, of which {} no call asked for: contexts, code", bytes(need.needed),
                     seconds_text(need.needed_ns), bytes(std::min(need.unnamed, need.needed))));
  append(text, "took",
         need.taken > need.needed ? fmt::format("{}: pools kept up to {} more than was in use",
                                                bytes(need.taken), bytes(need.taken - need.needed))
                                  : bytes(need.taken));
  if (need.processes.size() > 1) {
    for (const ProcessNeed& process : need.processes) {
      append(text, "",
             fmt::format("PID {} ({}) needed {} at most", process.pid, process.command,
                         bytes(process.needed)));
    }
  }
  if (need.refusals > 0) {
    append(text, "refused",
           fmt::format("{}: it may need more than this", report::count(need.refusals, "time")));
  }
  const std::string cap = amount(advice.cap);
  append(text, "cap",
         advice.cap == need.physical
             ? cap + ", all that the GPU has"
             : fmt::format("{}, which is that and {:.3g} % or at least {} of margin", cap,
                           margin_percent, bytes(kLeastMargin)),
         how(launches.cap, "--memory " + cap));
  if (!advice.slices) return text;
  const Slices& slices = *advice.slices;
  if (slices.eighths > 0) {
    const double share = slices.eighths / 8.0;
    append(text, "share", fmt::format("{} of the GPU", share),
           how(launches.slice, fmt::format("--fraction {}", share)));
  }
  if (!slices.mig_profile.empty()) {
    append(text, "MIG",
           fmt::format("{}, {}{}", slices.mig_profile, bytes(slices.mig_bytes),
                       slices.has_mig_mode ? "" : ", if the GPU is in MIG mode"),
           how(launches.slice && slices.has_mig_mode, "--mig " + slices.mig_profile));
  }
  if (!slices.partition.empty()) {
    append(text, "AMD",
           fmt::format("{}, {}{}", slices.partition, bytes(slices.partition_bytes),
                       slices.has_partition_mode ? "" : ", if the GPU is in that mode"),
           how(launches.slice && slices.has_partition_mode,
               fmt::format("--partition {} --count 1", slices.partition)));
  }
  if (slices.image_gb > 0)
    append(text, "image", fmt::format("a tag that ends in -{}gb", slices.image_gb));
  return text;
}

Json json_of(const Advice& advice) {
  Json row = {{"key", advice.need.key},
              {"name", advice.need.name},
              {"physical_bytes", advice.need.physical},
              {"needed_bytes", advice.need.needed},
              {"taken_bytes", advice.need.taken},
              {"unnamed_bytes", advice.need.unnamed},
              {"refusals", advice.need.refusals},
              {"cap_bytes", advice.cap}};
  Json processes = Json::array();
  for (const ProcessNeed& process : advice.need.processes) {
    processes.push_back({{"pid", process.pid},
                         {"command", process.command},
                         {"needed_bytes", process.needed},
                         {"taken_bytes", process.taken}});
  }
  row["processes"] = processes;
  if (advice.spread) {
    row["runs"] = Json{{"count", advice.spread->runs},
                       {"least_bytes", advice.spread->least},
                       {"median_bytes", advice.spread->median},
                       {"p99_bytes", advice.spread->p99},
                       {"most_bytes", advice.spread->most}};
  }
  if (advice.slices) {
    const Slices& slices = *advice.slices;
    row["fraction"] = slices.eighths > 0 ? Json(slices.eighths / 8.0) : Json(nullptr);
    row["mig_profile"] = slices.mig_profile.empty() ? Json(nullptr) : Json(slices.mig_profile);
    row["partition"] = slices.partition.empty() ? Json(nullptr) : Json(slices.partition);
    row["image_gb"] = slices.image_gb > 0 ? Json(slices.image_gb) : Json(nullptr);
  }
  if (advice.found) {
    row["verified"] = Json{{"passed", advice.found->bytes != 0},
                           {"bytes", advice.found->bytes},
                           {"seconds", advice.found->seconds},
                           {"runs", advice.found->runs}};
  }
  return row;
}

}  // namespace fracgpu::tools
