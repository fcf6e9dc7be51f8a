// What differs between NVIDIA's drivers in their lists of processes, as ranges of versions, from
// the public history of NVIDIA/open-gpu-kernel-modules ("ogkm") and from reports.
#include <cstdio>
#include <tuple>

#include "sim/nvml/pids.h"

namespace sim {
namespace {

using Version = std::tuple<int, int, int>;

enum class Modules { kAny, kOpen, kClosed };

struct Fact {
  bool ListRules::*rule;
  Modules modules;
  Version first, fixed;  // from the one to before the other
};

constexpr Version kOldest{0, 0, 0}, kNotYet{9999, 0, 0};

constexpr Fact kFacts[] = {
    // ogkm 535.104.05, gpu_rmapi.c: the list has `pClient->ProcID`. From 535.113.01 on it has
    // `osFindNsPid(pClient->pOsPidInfo)`.
    {&ListRules::host_pids, Modules::kAny, kOldest, {535, 113, 1}},

    // The closed modules never did that: NVIDIA/nvidia-container-toolkit#1013 shows containers on
    // 535.183.01 without processes, and vgpu-manager has a mode of its own for the open ones.
    {&ListRules::host_pids, Modules::kClosed, kOldest, kNotYet},

    // ogkm 535.113.01 to 560.35.03, with all of R535 and R550: the memory is that of the clients
    // with `pClient->ProcID == pid`, though `pid` is of the caller's namespace. Seen in
    // Project-HAMi/HAMi-core#112 as "324 mem: 0". 565.57.01 has `_gpuMatchClientPid`.
    {&ListRules::memory_by_host_pid, Modules::kOpen, {535, 113, 1}, {565, 57, 1}},

    // ogkm, os-interface.c, `os_get_pid_info`: PIDTYPE_PID is the thread. PIDTYPE_TGID since
    // 570.148.08, and in R575 since 575.57.08.
    {&ListRules::thread_pids, Modules::kOpen, {535, 113, 1}, {570, 148, 8}},
    {&ListRules::thread_pids, Modules::kOpen, {575, 0, 0}, {575, 57, 8}},

    // ogkm 535.113.01 to at least 595.45.04, `_gpuiIsPidSavedAlready(pClient->ProcID, ...)`: a host
    // PID is sought among PIDs of the caller's namespace. So a process with two clients is there
    // twice, and one whose host PID is somebody's number there is left out.
    {&ListRules::repeats_clients, Modules::kOpen, {535, 113, 1}, kNotYet},
};

Version version_in(const char* text) {
  int a = 0, b = 0, c = 0;
  std::sscanf(text, "%d.%d.%d", &a, &b, &c);
  return {a, b, c};
}

}  // namespace

bool driver_is_since(const char* text, int major, int minor, int patch) {
  return version_in(text) >= Version(major, minor, patch);
}

ListRules list_rules(const char* version, bool open_modules) {
  const Version at = version_in(version);
  ListRules rules;
  for (const Fact& fact : kFacts) {
    const bool meant =
        fact.modules == Modules::kAny || (fact.modules == Modules::kOpen) == open_modules;
    if (meant && at >= fact.first && at < fact.fixed) rules.*fact.rule = true;
  }
  return rules;
}

}  // namespace sim
