// `fracgpu doctor`: runs all checks and prints their findings.
#include "tools/doctor/doctor.h"

#include <fmt/core.h>
#include <stdlib.h>

#include <algorithm>
#include <future>
#include <memory>

#include "tools/cli/arguments.h"
#include "tools/cli/exit_status.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/cli/text_list.h"
#include "tools/doctor/checks.h"
#include "tools/doctor/mapped_library.h"
#include "tools/doctor/program.h"
#include "tools/doctor/vendor_probes.h"
#include "tools/ui/drawing.h"

namespace fracgpu::tools {
namespace {

using State = Finding::State;

constexpr const char* kExamples = R"(Examples:
  fracgpu doctor                         is the cap in force here, and if not, why not?
  docker run IMAGE fracgpu doctor        the same of an image
  fracgpu run --memory 8GiB -- fracgpu doctor
                                         of what fracgpu run starts
  fracgpu doctor -- ./train              and would this program be under the cap?
  HEALTHCHECK CMD fracgpu doctor --quiet
                                         in a Dockerfile

The drivers' libraries are asked by children with a deadline, so that a driver that hangs or crashes
is named and no more. Without --contexts no GPU memory is taken but what AMD's runtime needs.
Exit status: 0 nothing failed (there may be warnings); 1 a check failed; 2 wrong usage.)";

constexpr size_t kColumns = 80, kIndent = 21;

struct DoctorOptions {
  std::vector<std::string> command;
  std::string probe;
  int deadline_s = 10;
  bool contexts = false, json = false, quiet = false;
};

const char* name_of(State state) {
  return state == State::ok ? "ok" : state == State::warn ? "warn" : "fail";
}

Findings examine(const DoctorOptions& options) {
  Setup setup;
  setup.library = mapped_library();
  Findings all;
  const auto add = [&all](Findings some) {
    for (Finding& each : some) all.push_back(std::move(each));
  };
  const Findings limits = check_limits(setup);
  add(check_library(setup));
  add(check_preload(setup));
  add(limits);
  add(check_namespaces());
  add(check_ledgers(setup));

  // This probe runs first and alone: the processes of other probes must not appear in its list.
  const ProbeReport gpus = run_probe("gpus", without_library(), options.deadline_s);
  std::map<std::string, std::future<ProbeReport>> asked;
  for (const std::string& name : vendor_probes(options.contexts)) {
    asked[name] = std::async(std::launch::async, run_probe, name, Changes(), options.deadline_s);
  }
  VendorReports vendors;
  for (auto& [name, report] : asked) vendors[name] = report.get();
  add(check_driver(gpus, vendors));
  add(check_divisions(gpus));
  add(check_lookups(vendors, setup));
  add(check_caps(vendors, known_gpus(gpus, setup), setup));
  add(check_mig_nodes(gpus));
  add(check_bypass(gpus));
  add(check_program(options.command));
  return all;
}

// Breaks `text` into lines, all except the first indented by `indent` blanks.
std::string wrapped(const std::string& text, size_t indent) {
  std::string out;
  size_t column = indent;
  for (const std::string_view word : split(text, ' ')) {
    if (column > indent && column + 1 + word.size() > kColumns) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += " ";
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out + "\n";
}

std::string page_of(const Findings& findings, const Style& style) {
  std::string page;
  size_t count[3] = {};
  for (const Finding& finding : findings) {
    ++count[static_cast<size_t>(finding.state)];
    const char* const colour = finding.state == State::ok     ? "32"
                               : finding.state == State::warn ? "33"
                                                              : "31";
    const std::string state = fmt::format("{:<4}", name_of(finding.state));
    page += fmt::format("{}  {:<14} {}",
                        style.colour ? fmt::format("\033[{}m{}\033[0m", colour, state) : state,
                        finding.check, wrapped(finding.text, kIndent));
    if (!finding.remedy.empty()) {
      page += std::string(kIndent, ' ') + wrapped("-> " + finding.remedy, kIndent);
    }
  }
  return page + fmt::format("{} ok, {} warnings, {} failed\n", count[0], count[1], count[2]);
}

std::string json_of(const Findings& findings, bool healthy) {
  Json checks = Json::array();
  for (const Finding& finding : findings) {
    checks.push_back({{"check", finding.check},
                      {"state", name_of(finding.state)},
                      {"text", finding.text},
                      {"remedy", finding.remedy.empty() ? Json(nullptr) : Json(finding.remedy)}});
  }
  return Json{{"healthy", healthy}, {"checks", checks}}.dump_ascii(2) + "\n";
}

int doctor(const DoctorOptions& options) {
  if (!options.probe.empty()) return be_probe(options.probe);
  const Findings findings = examine(options);
  const bool healthy = std::none_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.state == State::fail;
  });
  if (options.json) {
    print(json_of(findings, healthy));
  } else if (!options.quiet) {
    print(page_of(findings, Style::of_stdout()));
  } else {
    for (const Finding& finding : findings) {
      if (finding.state == State::fail) print(finding.check + ": " + finding.text + "\n");
    }
  }
  return healthy ? kOk : kFailed;
}

}  // namespace

void add_doctor_command(Command program) {
  const auto options = std::make_shared<DoctorOptions>();
  Command command = program.add_subcommand(
      "doctor", "Check that the cap is in force here, and say what to do if not");
  command.add_option("COMMAND", options->command, "Behind --: a command to judge; it is not run");
  command.add_option("--deadline", options->deadline_s, "Seconds that a driver may take to answer")
      .range(1, 600)
      .shows_default();
  command.add_flag("--contexts", options->contexts,
                   "Make a context on each GPU, to see what cuMemGetInfo and hipMemGetInfo say");
  const Option json = command.add_flag("--json", options->json, "For programs");
  command.add_flag("-q,--quiet", options->quiet, "Only what failed, a line each").excludes(json);
  command.add_option("--probe", options->probe).hidden();  // for calling itself
  command.set_footer(kExamples);
  command.set_body([options] { return doctor(*options); });
}

}  // namespace fracgpu::tools
