// See command.h.
#include "tools/report/command.h"

#include <fmt/core.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "shim/base/text.h"
#include "tools/cli/arguments.h"
#include "tools/cli/exit_status.h"
#include "tools/cli/output.h"
#include "tools/cli/replace_file.h"
#include "tools/recording/reader.h"
#include "tools/recording/symbols.h"
#include "tools/report/analysis.h"
#include "tools/report/collapsed.h"
#include "tools/report/comparison.h"
#include "tools/report/event_lines.h"
#include "tools/report/json.h"
#include "tools/report/page.h"
#include "tools/report/page_file.h"
#include "tools/report/perfetto.h"
#include "tools/report/python_frames.h"
#include "tools/report/text.h"
#include "tools/report/units.h"

namespace fracgpu::tools {
namespace {

using report::Analysis;

constexpr const char* kExamples = R"(Examples:
  fracgpu report train.rec                   peaks, what they were made of, what was not released,
                                             who allocates the most, pools, refusals
  fracgpu report train.rec --device 0 --process python --top 30
  fracgpu report train.rec --from 10s --to 20s   what happened in that span of it
  fracgpu report train.rec --python              call stacks of Python's functions alone
  fracgpu report train.rec --by function     or --by module, --by stack; --frames 5: more callers
  fracgpu report before.rec after.rec        what is different in the second recording
  fracgpu report train.rec --html train.html     the same as a page for any browser, with a timeline
                                                 and flame graphs
  fracgpu report train.rec --format perfetto > train.json        for https://ui.perfetto.dev
  fracgpu report train.rec --format collapsed --of leaks | flamegraph.pl > leaks.svg
  fracgpu report before.rec after.rec --format collapsed | flamegraph.pl > difference.svg
  fracgpu report train.rec --format ndjson | jq 'select(.event == "refused")'
  fracgpu report train.rec --json | jq '.devices[] | {name, taken, needed}'

fracgpu record makes recordings; one that is still being written can be looked at too. "Needed" is
what was taken, less what pools held and could have given back.
Exit status: 0 told; 1 there is no such recording, or it was cut off or is damaged, and what precedes
that is told; 2 wrong usage.)";

struct ReportOptions {
  std::string file, other, html;
  report::Choice choice;
  std::string from, to;
  std::vector<std::string> symbols;
  std::string format = "text", of, by = "site";
  int top = 10, callers = report::Naming{}.callers;
  bool json = false, reversed = false, python = false;
  struct Given {
    bool other, top, by, callers;
  } given{};
};

Analysis analysis_of(const std::string& file, const ReportOptions& options) {
  recording::Reader reader(file);
  Analysis analysis = report::analyse(reader, options.choice);
  if (options.python && !report::keep_python_frames(analysis.tables)) {
    throw std::runtime_error(
        fmt::format("{} names no function of Python; record one of 3.12 or later with -X perf",
                    fracgpu::quoted(file).view()));
  }
  return analysis;
}

uint64_t moment_of(const char* option, const std::string& text) {
  const std::optional<uint64_t> moment = report::parse_duration(text);
  if (moment) return *moment;
  throw WrongUsage(
      fmt::format("{} is no moment of a recording; accepted: {} 10s, 1.5s, 250ms, 2m, 1h",
                  fracgpu::quoted(text).view(), option));
}

void choose_span(ReportOptions& options) {
  report::Choice& choice = options.choice;
  if (!options.from.empty()) choice.from_ns = moment_of("--from", options.from);
  if (!options.to.empty()) choice.to_ns = moment_of("--to", options.to);
  if (choice.to_ns <= choice.from_ns) {
    throw WrongUsage(fmt::format("--to {} is not later than --from {}", options.to,
                                 options.from.empty() ? "0s" : options.from));
  }
}

report::Of of(const std::string& word) {
  return word == "leaks"       ? report::Of::leaks
         : word == "allocated" ? report::Of::allocated
         : word == "temporary" ? report::Of::temporary
                               : report::Of::peak;
}

report::Naming naming_of(const ReportOptions& options) {
  using By = report::Naming::By;
  const By by = options.by == "function" ? By::function
                : options.by == "module" ? By::module
                : options.by == "stack"  ? By::stack
                                         : By::site;
  return {.by = by, .callers = options.callers};
}

std::string told(const Analysis& analysis, const ReportOptions& options) {
  recording::Symbols symbols(options.symbols);
  if (options.format == "json") return report::as_json(analysis, symbols);
  if (options.format == "perfetto") return report::as_perfetto(analysis);
  if (options.format == "collapsed") {
    return report::as_collapsed(analysis, symbols, of(options.of), options.reversed);
  }
  return report::as_text(analysis, symbols, Style::of_stdout(), naming_of(options),
                         static_cast<size_t>(options.top));
}

std::string compared(const Analysis& before, const Analysis& after, const ReportOptions& options) {
  recording::Symbols symbols(options.symbols);
  if (options.format == "collapsed")
    return report::as_collapsed(before, after, symbols, of(options.of), options.reversed);
  const report::Comparison comparison =
      report::compare(before, after, symbols, naming_of(options), static_cast<size_t>(options.top));
  return options.format == "json" ? report::as_json(comparison) : report::as_text(comparison);
}

int tell_events(const ReportOptions& options) {
  if (!options.choice.device.empty() || !options.choice.process.empty() || !options.from.empty() ||
      !options.to.empty() || options.python)
    throw WrongUsage("--format ndjson is of all events: choose among its lines, as with jq");
  recording::Reader reader(options.file);
  recording::Symbols symbols(options.symbols);
  report::write_event_lines(reader, symbols, [](const std::string& text) { print(text); });
  if (!reader.damage().empty()) complain(reader.damage());
  return reader.damage().empty() ? kOk : kFailed;
}

// Refuses options that would change nothing.
void check_use(const ReportOptions& options) {
  const auto& [other, top, by, callers] = options.given;
  const std::string& format = options.format;
  const bool has_tables = format == "text" || (other && format == "json");
  if (other && options.other.empty()) throw WrongUsage("OTHER is empty: name a second recording");
  if ((by || callers) && !has_tables) {
    throw WrongUsage(
        fmt::format("{} is for the tables of text, pages and comparisons, and not for {}",
                    by ? "--by" : "--frames", format));
  }
  if (callers && options.by != "site")
    throw WrongUsage(fmt::format("--frames is for call sites, and not for --by {}", options.by));
  if (top && (!has_tables || !options.html.empty())) {
    throw WrongUsage(fmt::format("--top is for the tables of text and comparisons, and not for {}",
                                 options.html.empty() ? format : "pages, which have all lines"));
  }
  if (format == "perfetto" && (options.python || !options.symbols.empty())) {
    throw WrongUsage(fmt::format("{} is for call stacks, and --format perfetto has none",
                                 options.python ? "--python" : "--symbols"));
  }
  for (const std::string& folder : options.symbols) {
    if (std::error_code error; std::filesystem::is_directory(folder, error)) continue;
    throw WrongUsage(fmt::format("--symbols {} is no folder; name one that has the programs",
                                 fracgpu::quoted(folder).view()));
  }
}

int tell(ReportOptions& options) {
  if (options.json) options.format = "json";
  check_use(options);
  choose_span(options);
  const bool compares = !options.other.empty();
  if (!options.of.empty() && options.format != "collapsed")
    throw WrongUsage("--of says what collapsed stacks are of: add --format collapsed");
  if (options.reversed && options.format != "collapsed")
    throw WrongUsage("--reversed turns collapsed stacks round: add --format collapsed");
  if (compares && (options.format == "perfetto" || options.format == "ndjson")) {
    throw WrongUsage(fmt::format(
        "two recordings are compared as text, json or collapsed, and not as {}; name one file",
        options.format));
  }
  if (!options.html.empty()) report::judge_page_file(options.html);
  if (options.format == "ndjson") return tell_events(options);
  if (options.format == "perfetto") options.choice.points = report::kTracePoints;
  const Analysis analysis = analysis_of(options.file, options);
  bool whole = analysis.damage.empty();
  if (compares) {
    const Analysis other = analysis_of(options.other, options);
    print(compared(analysis, other, options));
    if (!other.damage.empty()) complain(other.damage);
    whole = whole && other.damage.empty();
  } else if (!options.html.empty()) {
    recording::Symbols symbols(options.symbols);
    replace_file(options.html, report::page(analysis, symbols, naming_of(options)));
  } else {
    print(told(analysis, options));
  }
  if (!analysis.damage.empty()) complain(analysis.damage);
  return whole ? kOk : kFailed;
}

}  // namespace

void add_report_command(Command program) {
  const auto options = std::make_shared<ReportOptions>();
  Command command = program.add_subcommand("report", "Tell what a recording of GPU memory says");
  command.add_option("FILE", options->file, "What fracgpu record has written").required();
  const Option other =
      command.add_option("OTHER", options->other, "A second recording, to be compared with it");
  command.add_option("--device", options->choice.device,
                     "This GPU alone: its number, or its UUID or the beginning of it");
  command.add_option("--process", options->choice.process,
                     "These processes alone: a PID, or the name of a command");
  command.add_option("--from", options->from,
                     "A span of the recording alone, from this moment on, as 10s, 1.5s, 250ms, 2m");
  command.add_option("--to", options->to, "... until this one; what there is then is what is left");
  command.add_flag(
      "--python", options->python,
      "Of call stacks, the frames of Python's functions alone (recorded with -X perf)");
  const Option top = command.add_option("--top", options->top, "Lines of a table, at most")
                         .range(1, 100'000)
                         .shows_default();
  const Option by =
      command
          .add_option(
              "--by", options->by,
              "What a line of a table of call sites stands for: site (a place and its callers), "
              "function, module or stack")
          .one_of({"site", "function", "module", "stack"});
  const Option callers =
      command
          .add_option(
              "--frames", options->callers,
              "Callers that tell a site from others, at most; those that all have are left out")
          .range(0, 512)
          .shows_default();
  const Option format = command
                            .add_option("--format", options->format,
                                        "text, json, collapsed, perfetto or ndjson (each event)")
                            .one_of({"text", "json", "collapsed", "perfetto", "ndjson"});
  command
      .add_option("--of", options->of,
                  "What collapsed stacks are of: peak (as it is without), leaks, allocated, or "
                  "temporary: released before anything else was allocated")
      .one_of({"peak", "leaks", "allocated", "temporary"});
  command.add_flag(
      "--reversed", options->reversed,
      "Collapsed stacks begin with the function that allocates, and its callers follow");
  const Option json =
      command.add_flag("--json", options->json, "As --format json; amounts are in bytes")
          .excludes(format);
  command
      .add_option("--html", options->html,
                  "Write a page into this file instead, which needs no network: a timeline, flame "
                  "graphs, tables")
      .excludes(format)
      .excludes(json)
      .excludes(other);
  command
      .add_option("--symbols", options->symbols,
                  "A folder to look for programs and libraries in, as those of another machine")
      .takes_one_value();
  command.set_footer(kExamples);
  command.set_body([=] {
    options->given = {other.is_given(), top.is_given(), by.is_given(), callers.is_given()};
    return tell(*options);
  });
}

}  // namespace fracgpu::tools
