// See launch.h.
#include "tools/record/launch.h"

#include <fmt/core.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shim/base/text.h"
#include "shim/config/cap_configured.h"
#include "shim/config/limits.h"
#include "tools/cli/output.h"
#include "tools/launch/launch_tree.h"
#include "tools/launch/member.h"
#include "tools/launch/outer_cap.h"

namespace fracgpu::tools {
namespace {

std::string new_tenant() {
  timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return fmt::format("record-{}-{}{:03}", getpid(), now.tv_sec, now.tv_nsec / 1'000'000);
}

void check_limit(const std::string& text) {
  Limits limits;
  Message error;
  if (!text.empty() && !limits.parse(text, error))
    throw RunError(kRunFailed, fmt::format("--memory: {}", error.c_str()));
}

}  // namespace

std::string command_text(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    const bool plain =
        !word.empty() && word.find_first_of(" \t\n'\"\\$`&|;<>()*?[]#~") == word.npos;
    std::string quoted = word;
    for (size_t at = 0; (at = quoted.find('\'', at)) != quoted.npos; at += 4) {
      quoted.replace(at, 1, "'\\''");
    }
    text += (text.empty() ? "" : " ") + (plain ? word : "'" + quoted + "'");
  }
  return text;
}

RecordedEnd run_recorded(const RecordedLaunch& launch) {
  check_limit(launch.memory);
  find_command(launch.command.empty() ? "" : launch.command[0]);
  const std::vector<Gpu> gpus = list_gpus();
  const std::optional<OuterCap> outer = find_outer_cap(gpus);
  if (outer && !launch.memory.empty() && !outer->may_be_lowered) {
    throw RunError(kRunFailed,
                   fmt::format("this is inside tenant {}, whose cap holds: leave --memory out",
                               outer->tenant));
  }
  const std::string tenant = outer ? outer->tenant : new_tenant();
  // Without a cap, the library counts nothing.
  const std::string limit = !launch.memory.empty() ? launch.memory
                            : outer                ? outer->limit.value_or("")
                            : cap_is_configured()  ? ""
                                                   : "100%";
  RecordingOptions options = launch.recording;
  options.command = command_text(launch.command);
  options.device_name = [&](const std::string& key) {
    for (const Gpu& gpu : gpus) {
      if (gpu.key == key) return gpu.label() + (gpu.model.empty() ? "" : " " + gpu.model);
    }
    return key;
  };
  RecordedEnd end;
  {
    TenantRecorder recorder(tenant, options);
    end.wait_status =
        run_tree(launch.command, tenant_environment(tenant, limit, gpus, nullptr), -1);
    end.summary = recorder.finish();
  }
  if (!outer) remove_dead_ledger(tenant);
  return end;
}

void tell(const RecordingSummary& summary, const std::string& path) {
  if (!summary.failure.empty()) complain(summary.failure);
  struct stat status = {};
  const uint64_t size =
      stat(path.c_str(), &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
  std::string line = fmt::format("recorded {} event{} of {} process{} in {} ({})", summary.events,
                                 summary.events == 1 ? "" : "s", summary.processes,
                                 summary.processes == 1 ? "" : "es", fracgpu::quoted(path).view(),
                                 human_bytes(size).view());
  if (summary.dropped > 0) {
    line += fmt::format("; {} more came too fast and were dropped", summary.dropped);
  }
  if (summary.unrecorded > 0) {
    line += fmt::format("; {} process{} not recorded: {}", summary.unrecorded,
                        summary.unrecorded == 1 ? " was" : "es were", summary.unrecorded_names);
  }
  if (summary.processes == 0 && summary.unrecorded == 0) {
    line += "; no process used a GPU by a library that can be recorded (try fracgpu doctor -- CMD)";
  } else {
    const std::string file = (path.starts_with('-') ? "./" : "") + path;
    line += fmt::format("; look at it with: fracgpu report {}", command_text({file}));
  }
  complain(line);
}

}  // namespace fracgpu::tools
