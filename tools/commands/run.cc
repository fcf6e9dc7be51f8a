// `fracgpu run`; see run.h.
#include "tools/commands/run.h"

#include <fmt/core.h>
#include <stdio.h>

#include <optional>

#include "shim/base/clock.h"
#include "tools/cli/arguments.h"
#include "tools/cli/exit_status.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/launch/instance.h"
#include "tools/launch/launch_tree.h"
#include "tools/launch/member.h"
#include "tools/launch/outer_cap.h"

namespace fracgpu::tools {
namespace {

constexpr const char* kExamples = R"(Examples:
  fracgpu run --memory 8GiB -- python train.py          at most 8 GiB on each GPU
  fracgpu run --memory 0=8GiB,1=4GiB -- ./job           GPUs 0 and 1 alone, each with its cap
  fracgpu run --fraction 0.5 -- python train.py         half of a GPU, whichever has room
  fracgpu run --fraction 0=0.5,1=0.25 -- ./job          these shares of these two
  fracgpu run --count 2 --gpus 4-7 -- ./job             two whole GPUs of these four
  fracgpu run --fraction 1 --wait=2h --priority 5 -- ./job
                                                        waits its turn, before those of less
  fracgpu run --fraction 0.25 --dry-run                 says where it would go
  fracgpu run --memory 8GiB --explain -- ./job          says at the end why memory was refused
  fracgpu run --mig 2g.20gb -- ./job                    an instance of a GPU in MIG mode, for as long

On GPUs in MIG mode root's --memory and --fraction make an instance of the smallest profile that is
enough, and --fraction takes what is free first, a share of another GPU or an instance.

Inside a launch or a capped container it joins: the cap around it holds for both together, a lower one
and another name are refused.
GPUs that CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES hides are not chosen, and
not to be named; numbers are those of nvidia-smi or rocm-smi all the same.
Exit status: the command's own, and a signal that ended it ends this too; 75 no room now; 125 wrong
usage, or fracgpu itself failed; 126 the command cannot be run; 127 there is no such command.)";

struct RunOptions {
  RequestText request;
  std::string tenant, wait;
  int priority = 0;
  bool dry_run = false, json = false, explain = false;
  std::vector<std::string> command;
};

constexpr const char* kForEver = "forever";

// In milliseconds; none if the text is not a duration.
std::optional<uint64_t> plain_duration_of(const std::string& text) {
  constexpr uint64_t kSecond = 1000;
  if (text.empty()) return {};
  const uint64_t unit = text.back() == 's'   ? kSecond
                        : text.back() == 'm' ? 60 * kSecond
                        : text.back() == 'h' ? 3600 * kSecond
                        : text.back() == 'd' ? 86400 * kSecond
                                             : 0;
  const std::string digits = text.substr(0, text.size() - 1);
  if (unit == 0 || digits.empty() || digits.size() > 9 ||
      digits.find_first_not_of("0123456789") != digits.npos) {
    return {};
  }
  return std::stoull(digits) * unit;
}

uint64_t duration_of(const std::string& text) {
  if (text.empty()) return 0;
  if (text == kForEver) return UINT64_MAX;
  const std::optional<uint64_t> duration = plain_duration_of(text);
  if (!duration) {
    throw RunError(kRunFailed, fmt::format("{} is no time to wait; accepted: --wait, "
                                           "--wait=30s, --wait=10m, --wait=2h, --wait=1d",
                                           fracgpu::quoted(text).view()));
  }
  return *duration;
}

// Detects "--wait 5s": the time would be taken for the command.
void check_command(const RunOptions& options) {
  const std::vector<std::string>& command = options.command;
  if (options.wait == kForEver && !command.empty() && plain_duration_of(command[0])) {
    throw RunError(kRunFailed,
                   fmt::format("how long to wait is written with =, as in --wait={}", command[0]));
  }
  if (command.empty() && !options.dry_run) {
    throw RunError(kRunFailed,
                   "what is to be run? Write it behind --, as in: fracgpu run --memory "
                   "8GiB -- python train.py");
  }
  if (!command.empty()) find_command(command[0]);
}

Json json_of_instance(const Request& request, const Share& share) {
  const auto cap = request.instance_cap();
  return {{"index", nullptr},
          {"key", share.key},
          {"fraction", nullptr},
          {"instance", request.instance_text(share)},
          {"cap_bytes", cap ? Json(*cap) : Json(nullptr)}};
}

int show_placement(const RunOptions& options, const Request& request, const ClaimRequest& wanted) {
  std::vector<Share> shares;
  ClaimTable table(request.view());
  const bool fits = table.preview(wanted, shares);
  if (options.json) {
    Json gpus = Json::array();
    for (const Share& share : shares) {
      if (share.instance) gpus.push_back(json_of_instance(request, share));
    }
    for (const Gpu& gpu : fits ? request.granted(shares) : std::vector<Gpu>()) {
      Json row = {
          {"index", gpu.index}, {"key", gpu.key}, {"fraction", nullptr}, {"cap_bytes", nullptr}};
      for (const Share& share : shares) {
        if (share.key == gpu.key) row["fraction"] = share.eighths / 8.0;
      }
      const auto cap = request.cap_on(gpu, shares);
      if (cap && gpu.physical != 0) row["cap_bytes"] = cap->of(gpu.physical);
      gpus.push_back(std::move(row));
    }
    print(Json{{"fits", fits}, {"gpus", gpus}}.dump() + "\n");
  } else if (fits) {
    print(placement_text(request, shares));
  } else {
    print("no room now:\n" + holders_text(wanted.tenant, request, table.launches()));
  }
  return fits ? 0 : kFull;
}

// Waits until the claim is served or the time is over. Returns whether it is served.
bool wait_for(ClaimTable& table, const Claim& claim, uint64_t timeout_ms,
              std::vector<Share>& shares) {
  const uint64_t start = coarse_now_ms();
  for (long pause = 5; !table.served(claim, shares); pause = std::min(pause + 5, 100L)) {
    const uint64_t waited = coarse_now_ms() - start;
    if (waited >= timeout_ms) return false;
    sleep_ms(static_cast<long>(std::min<uint64_t>(pause, timeout_ms - waited)));
  }
  return true;
}

int show_inside(const RunOptions& options, const OuterCap& outer, const Inside& inside) {
  Json gpus = Json::array();
  std::string text;
  for (const Gpu& gpu : inside.gpus) {
    const uint64_t cap = outer.on(gpu).value_or(UINT64_MAX);
    const bool capped = cap != UINT64_MAX;
    gpus.push_back({{"index", gpu.index},
                    {"key", gpu.key},
                    {"fraction", nullptr},
                    {"cap_bytes", capped ? Json(cap) : Json(nullptr)}});
    text += fmt::format("{}: inside tenant {}, cap {}\n", gpu.label(), outer.tenant,
                        capped ? human_bytes(cap).c_str() : "none");
  }
  print(options.json ? Json{{"fits", true}, {"gpus", gpus}}.dump() + "\n" : text);
  return 0;
}

int run(const RunOptions& options) {
  const uint64_t timeout_ms = duration_of(options.wait);
  check_command(options);
  const std::vector<Gpu> gpus = list_gpus();
  const Request request(options.request, gpus);
  const std::optional<OuterCap> outer = find_outer_cap(gpus);
  if (outer) {
    const Inside inside = place_inside(*outer, options.tenant, request);
    if (!outer->may_be_lowered) {
      if (!inside.notice.empty()) complain(inside.notice);
      if (options.dry_run) return show_inside(options, *outer, inside);
      end_like(run_inside(*outer, inside, options.command, gpus, options.explain));
    }
  }
  request.check_capped();
  ClaimRequest wanted = request.claim_request();
  wanted.tenant = outer ? outer->tenant : tenant_or_new(options.tenant);
  wanted.priority = options.priority;
  if (!options.command.empty()) wanted.command = options.command[0];
  if (options.dry_run) return show_placement(options, request, wanted);

  ClaimTable table(request.view());
  if (request.may_be_instance()) destroy_orphans(table, Stuck::left);
  std::vector<Share> shares;
  Claim claim = table.enter(wanted);
  if (!table.served(claim, shares)) {
    const std::string holders = holders_text(wanted.tenant, request, table.launches());
    if (timeout_ms > 0) complain(fmt::format("waiting for room:\n{}", holders));
    if (!wait_for(table, claim, timeout_ms, shares)) {
      table.leave(std::move(claim));
      throw RunError(
          kFull,
          timeout_ms == 0
              ? fmt::format("no room now for {}; --wait waits for it:\n{}", wanted.asked, holders)
              : fmt::format("still no room for {}:\n{}", wanted.asked,
                            holders_text(wanted.tenant, request, table.launches())));
    }
  }
  try {
    check_caps_of_running(wanted.tenant, request, shares);
  } catch (const std::exception&) {
    table.leave(std::move(claim));
    throw;
  }
  end_like(run_member(wanted.tenant, options.command, request, gpus, std::move(claim), shares,
                      options.explain));
}

}  // namespace

void add_run_command(Command program) {
  const auto options = std::make_shared<RunOptions>();
  Command command = program.add_subcommand(
      "run",
      "Run a command and all its descendants as one tenant, under caps or on shares of GPUs");
  add_request_options(command, options->request);
  command.add_option("--tenant", options->tenant,
                     "Name of those who share the cap; one of its own when none is given");
  command.add_flag(fmt::format("--wait{{{}}}", kForEver), options->wait,
                   "Wait for room, for ever or as long as --wait=30s, 10m, 2h or 1d says");
  command
      .add_option("--priority", options->priority,
                  "Of those that wait, the highest is served first, then the oldest")
      .range(-kHighestPriority, kHighestPriority);
  command.add_flag("--explain", options->explain,
                   "At the end say why memory was refused, if any was, as fracgpu explain does");
  command.add_flag("--dry-run", options->dry_run, "Only say where it would go");
  command.add_flag("--json", options->json, "--dry-run for programs");
  command.add_command_to_run("COMMAND", options->command,
                             "What to run, with its arguments; best behind --");
  command.set_footer(kExamples);
  command.set_body([options] {
    try {
      return run(*options);
    } catch (const RunError& error) {
      complain(error.what());
      return error.status;
    } catch (const std::exception& error) {
      complain(error.what());
      return kRunFailed;
    }
  });
}

}  // namespace fracgpu::tools
