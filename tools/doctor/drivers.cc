// Checks the vendors' libraries, and whether every lookup of their functions finds our hook; see
// checks.h.
#include <fmt/core.h>
#include <string.h>

#include <algorithm>

#include "hooks/smi/amdsmi/layout.h"
#include "hooks/smi/nvml/driver_version.h"
#include "hooks/smi/nvml/list_meaning.h"
#include "hooks/usage/nvml_usage.h"
#include "shim/base/environment.h"
#include "shim/base/text.h"
#include "tools/doctor/checks.h"
#include "tools/doctor/elf_file.h"

namespace fracgpu::tools {
namespace {

using State = Finding::State;

constexpr const char* kStuckRemedy =
    "the driver is stuck or broken: see dmesg, nvidia-smi or rocm-smi; the cap is no cause of it "
    "if the same happens with LD_PRELOAD unset";

constexpr const char* kHiddenRemedy =
    "is the GPU given to this container with all its devices, and does the library belong to the "
    "kernel's driver?";

// Whether there is a GPU that this vendor's library should find.
bool has_gpu(const ProbeReport& gpus, const std::string& probe) {
  const char* const vendor = probe.starts_with("cuda") || probe == "nvml" ? "nvidia" : "amd";
  if (!gpus.told.contains("gpus")) return true;
  const auto& list = gpus.told["gpus"];
  return std::any_of(list.begin(), list.end(),
                     [&](const auto& gpu) { return gpu.value("vendor", "") == vendor; });
}

// The versions that the hooks were written for.
struct Range {
  const char *probe, *name, *first, *last;
};
constexpr Range kKnown[] = {{"cuda", "CUDA driver", "11.0", "13.99"},
                            {"hip", "HIP runtime", "5.2", "7.2"},
                            {"amdsmi", "libamd_smi", "23", "27"}};
static_assert(amdsmi::kFirstVersion == 23 && amdsmi::kLastVersion == 27);

// The limits of the driver's process lists on this machine, if any.
std::string lists_text(const nvml::DriverVersion& driver) {
  using Pids = nvml::ListMeaning::Pids;
  constexpr const char* kEstimates = "; contexts are charged by estimate there";
  const nvml::ListMeaning meaning = nvml::meaning_of_lists(driver);
  // On the host, this matters for containers.
  const nvml::Modules modules = nvml::modules_here();
  const nvml::ListMeaning inside = nvml::meaning_of_lists(driver, modules, false);
  if (inside.pids == Pids::host) {
    return fmt::format(
        ": it names processes by host PIDs, so that those of a private PID namespace are shown "
        "once fracgpu status has run on the host{}",
        kEstimates);
  }
  if (meaning.pids == Pids::unknown) {
    return fmt::format(
        ": nothing tells whose PIDs it lists in a private PID namespace, as "
        "/proc/driver/nvidia/version is not readable here{}",
        kEstimates);
  }
  if (!inside.amounts) {
    return fmt::format(
        ": it does not tell in a private PID namespace how much a process holds (mended in "
        "565.57.01){}",
        kEstimates);
  }
  return meaning.threads ? ": it lists threads as processes (mended in 570.148.08 and 575.57.08)"
                         : "";
}

Finding judge_version(const std::string& probe, const std::string& library,
                      const std::string& version) {
  constexpr const char* kCheck = "driver";
  for (const Range& known : kKnown) {
    if (probe != known.probe) continue;
    const std::string text = fmt::format("{} {} ({})", known.name, version, library);
    if (is_newer(known.first, version) || is_newer(version, known.last)) {
      return {State::warn, kCheck,
              fmt::format("{}, of which {} to {} are known", text, known.first, known.last),
              "look for a newer release of fracgpu, and test that the cap holds"};
    }
    return {State::ok, kCheck, text};
  }
  const nvml::DriverVersion driver = nvml::version_in(version.c_str());
  if (probe == "nvml" && driver.known()) {
    const std::string text = fmt::format("NVIDIA driver {} ({})", version, library);
    if (!nvml::third_lists_as_documented(driver)) {
      return {State::warn, kCheck,
              text +
                  ": its newest process lists have another form and are left alone, so that "
                  "tools show every process",
              "take a driver from 535.104 on"};
    }
    return {State::ok, kCheck, text + lists_text(driver)};
  }
  return {State::ok, kCheck, library + (version.empty() ? "" : " " + version)};
}

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// Whether the library may query NVML for the driver's count of a process.
Findings check_nvml_switch(const char* check) {
  const char* const text = trusted_environment(nvml::kSwitch);
  if (text == nullptr || strcmp(text, "on") == 0) return {};
  if (strcmp(text, "off") != 0) {
    return {{State::warn, check,
             fmt::format("{} is {}, which is neither \"on\" nor \"off\": NVML is used",
                         nvml::kSwitch, quoted(text).view()),
             fmt::format("set {}=off, or unset it", nvml::kSwitch)}};
  }
  return {{State::warn, check,
           fmt::format("{}=off: NVML is not asked, so that contexts are charged by an estimate, "
                       "and modules not at all",
                       nvml::kSwitch),
           fmt::format("unset {} where nvidia-smi answers soon", nvml::kSwitch)}};
}

}  // namespace

Findings check_driver(const ProbeReport& gpus, const VendorReports& vendors) {
  constexpr const char* kCheck = "driver";
  Findings findings = check_nvml_switch(kCheck);
  if (!gpus.done()) {
    findings.push_back({State::fail, kCheck, "looking for GPUs " + gpus.trouble(), kStuckRemedy});
  }
  bool any = false;
  for (const auto& [probe, report] : vendors) {
    if (!report.done()) {
      findings.push_back(
          {State::fail, kCheck,
           fmt::format("asking {} {}", report.told.value("library", probe), report.trouble()),
           kStuckRemedy});
      any = true;
      continue;
    }
    if (report.told.contains("missing")) continue;
    any = true;
    const bool is_second_look = probe.ends_with("-context") && !report.told.contains("error");
    if (is_second_look) continue;
    const std::string library = report.told.value("library", "");
    if (report.told.contains("error")) {
      const std::string text = fmt::format("{}: {}", library, report.told.value("error", ""));
      findings.push_back(has_gpu(gpus, probe)
                             ? Finding{State::warn, kCheck, text, kHiddenRemedy}
                             : Finding{State::ok, kCheck, text + ", as no GPU of its is here"});
    } else {
      findings.push_back(judge_version(probe, library, report.told.value("version", "")));
    }
  }
  if (gpus.done() && (!gpus.told.contains("gpus") || gpus.told["gpus"].empty())) {
    findings.push_back({State::warn, kCheck,
                        any ? "no GPU is visible here" : "no GPU driver's library is here",
                        "where there should be a GPU: docker run --gpus all (NVIDIA), --device "
                        "/dev/kfd --device /dev/dri (AMD); is the kernel's driver loaded?"});
  }
  return findings;
}

Findings check_lookups(const VendorReports& vendors, const Setup& setup) {
  constexpr const char* kCheck = "lookups";
  Findings findings;
  if (!setup.preloaded()) return findings;
  for (const auto& [probe, report] : vendors) {
    if (!report.told.contains("lookups") || report.told["lookups"].empty()) continue;
    std::vector<std::string> open, answers;
    std::string function;
    for (const auto& lookup : report.told["lookups"]) {
      const std::string name = lookup.value("lookup", "");
      function = lookup.value("function", "");
      const bool hooked = lookup.value("hooked", false);
      // A getter may not know the function, but the linker must have found it.
      if (!hooked && (lookup.value("found", false) || name == "link")) open.push_back(name);
      if (!lookup["total"].is_null()) answers.push_back(lookup["total"].dump());
    }
    const bool differ =
        std::adjacent_find(answers.begin(), answers.end(), std::not_equal_to<>()) != answers.end();
    if (!open.empty() || differ) {
      findings.push_back(
          {State::fail, kCheck,
           open.empty() ? fmt::format("{} says something else by each way to it: {} bytes",
                                      function, list(answers))
                        : fmt::format("{} by {} is not ours: calls that way are not capped",
                                      function, list(open)),
           "is another library preloaded that has these functions? Name ours before it, or "
           "preload it alone"});
      continue;
    }
    std::vector<std::string> names;
    for (const auto& lookup : report.told["lookups"]) {
      if (lookup.value("hooked", false)) names.push_back(lookup.value("lookup", ""));
    }
    findings.push_back({State::ok, kCheck, fmt::format("{} by {}", function, list(names))});
  }
  return findings;
}

}  // namespace fracgpu::tools
