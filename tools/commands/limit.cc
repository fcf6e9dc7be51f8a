// `fracgpu limit`; see limit.h. Every user who may change a cap may lower it. Raising is limited by
// the ceilings of this machine and of each image in which a process of the tenant runs, and by the
// share that the launch claimed.
#include "tools/commands/limit.h"

#include <errno.h>
#include <fmt/core.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <set>
#include <stdexcept>

#include "shim/base/text.h"
#include "shim/config/ceiling.h"
#include "shim/ledger/ledger.h"
#include "tools/claims/claim_table.h"
#include "tools/cli/arguments.h"
#include "tools/cli/exit_status.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/cli/plain_text.h"
#include "tools/launch/request.h"
#include "tools/machine/gpus.h"
#include "tools/machine/ledger_reader.h"

namespace fracgpu::tools {
namespace {

constexpr const char* kExamples = R"(Examples:
  fracgpu limit team-a 12GiB             on every GPU that the tenant has used
  fracgpu limit team-a 50% --gpu 1       on one

What is in use stays in use: below it the tenant is granted nothing until enough is freed.
Exit status: 0 changed; 1 not changed, a line says why; 2 wrong usage.)";

struct LimitOptions {
  std::string tenant, amount, gpu;
  bool json = false;
};

struct Change {
  DeviceUse device;
  uint64_t cap = 0;  // bytes
};

[[noreturn]] void refuse(const std::string& line) {
  throw std::runtime_error(line);
}

void check_permission(const Ledger& ledger, const std::string& tenant) {
  struct stat status = {};
  if (geteuid() == 0 || (stat(ledger.path(), &status) == 0 && status.st_uid == geteuid())) return;
  refuse(fmt::format("tenant {} belongs to {}; only that user and root may change its cap", tenant,
                     user_name(status.st_uid)));
}

DeviceName name_of(const std::string& key, const std::vector<Gpu>& gpus) {
  for (const Gpu& gpu : gpus) {
    if (gpu.key == key) return gpu.name();
  }
  return {.key = key};
}

// The limits that the ceiling files set for the device, and their sources.
class Ceilings {
 public:
  Ceilings() { add(kCeilingFile, "this machine"); }

  // Adds the ceiling of the image that the process runs in.
  void add(const ProcessUse& process) {
    const uint32_t pid = process.host_pid != 0 ? process.host_pid : process.pid;
    const std::string root = fmt::format("/proc/{}/root", pid);
    if (access((root + "/").c_str(), X_OK) != 0) {
      refuse(fmt::format(
          "the ceiling of the image of PID {} cannot be looked at from here ({}), so its cap can "
          "only be lowered; try as root on the host",
          pid, strerror(errno)));
    }
    add(root + kCeilingFile, fmt::format("the image of PID {}", pid));
  }

  void check(const Change& change, const DeviceName& device) const {
    for (const auto& [limits, whose] : ceilings_) {
      const uint64_t most = limits.cap_for(device, change.device.physical);
      if (change.cap <= most) continue;
      refuse(
          fmt::format("{} on {} is above the ceiling of {}, which {} in {} sets; ask for that "
                      "or less",
                      human_bytes(change.cap).c_str(), change.device.key, human_bytes(most).c_str(),
                      whose, kCeilingFile));
    }
  }

 private:
  void add(const std::string& path, const std::string& whose) {
    Limits limits;
    Message error;
    if (!read_ceiling(path.c_str(), limits, error)) refuse(error.c_str());
    if (!limits.empty()) ceilings_.emplace_back(limits, whose);
  }
  std::vector<std::pair<Limits, std::string>> ceilings_;
};

// Throws if a change raises a cap beyond its limits.
void check_raised(const std::string& tenant, const std::vector<Change>& changes,
                  const std::vector<Gpu>& gpus) {
  Ceilings ceilings;
  std::set<uint32_t> seen;
  for (const Change& change : changes) {
    for (const ProcessUse& process : change.device.processes) {
      if (process.lives() && seen.insert(process.pid).second) ceilings.add(process);
    }
  }
  for (const Change& change : changes) {
    ceilings.check(change, name_of(change.device.key, gpus));
  }
  if (!ClaimTable::exists()) return;
  for (const Launch& launch : ClaimTable().launches()) {
    if (launch.tenant != tenant) continue;
    for (const Change& change : changes) {
      for (const Share& share : launch.shares) {
        const uint64_t most = change.device.physical / claim_table_layout::kEighths * share.eighths;
        if (share.key != change.device.key || change.cap <= most) continue;
        refuse(fmt::format(
            "tenant {} claimed a share of {} of {}, so that its cap there cannot be "
            "above {}",
            tenant, fraction_text(share.eighths), change.device.key, human_bytes(most).c_str()));
      }
    }
  }
}

std::vector<Change> changes_of(const TenantUse& tenant, const Amount& amount,
                               const std::string& gpu, const std::vector<Gpu>& gpus) {
  std::vector<std::string> wanted;
  if (!gpu.empty()) {
    for (const size_t place : choose_gpu(gpu, gpus)) wanted.push_back(gpus[place].key);
  }
  std::vector<Change> changes;
  for (const DeviceUse& device : tenant.devices) {
    const bool chosen =
        gpu.empty() || std::find(wanted.begin(), wanted.end(), device.key) != wanted.end();
    if (chosen) changes.push_back({device, amount.of(device.physical)});
  }
  if (changes.empty()) {
    refuse(fmt::format("tenant {} has used no {}: there is no cap in force to change", tenant.name,
                       gpu.empty() ? "GPU yet" : "memory of GPU " + gpu));
  }
  return changes;
}

void show(const std::vector<Change>& changes, const LimitOptions& options) {
  Json rows = Json::array();
  std::string text;
  for (const auto& [device, cap] : changes) {
    rows.push_back({{"key", device.key},
                    {"cap_bytes", cap},
                    {"cap_before_bytes", device.cap ? Json(*device.cap) : nullptr},
                    {"used_bytes", device.used}});
    text += fmt::format("{}: cap {}, was {}; {} in use{}\n", device.key, human_bytes(cap).c_str(),
                        device.cap ? human_bytes(*device.cap).c_str() : "none",
                        human_bytes(device.used).c_str(),
                        device.used > cap ? ", and nothing more until that has drained" : "");
  }
  print(options.json ? Json{{"tenant", options.tenant}, {"gpus", rows}}.dump() + "\n" : text);
}

void limit(const LimitOptions& options) {
  Amount amount;
  Message error;
  if (!parse_amount(options.amount, amount, error)) refuse(error.c_str());
  const TenantUse tenant = read_tenant(options.tenant);
  Ledger ledger;
  if (ledger.manage(options.tenant.c_str(), error) != LedgerFile::Result::ok) {
    refuse(error.empty() ? fmt::format("no tenant {}", fracgpu::quoted(options.tenant).view())
                         : error.c_str());
  }
  check_permission(ledger, options.tenant);
  if (!ledger.any_alive()) {
    refuse(fmt::format("no process of tenant {} runs, and its next one brings its own cap",
                       options.tenant));
  }
  const std::vector<Gpu> gpus = list_gpus();
  const std::vector<Change> changes = changes_of(tenant, amount, options.gpu, gpus);
  std::vector<Change> raised;
  std::copy_if(
      changes.begin(), changes.end(), std::back_inserter(raised),
      [](const Change& change) { return change.device.cap && change.cap > *change.device.cap; });
  if (!raised.empty()) check_raised(options.tenant, raised, gpus);
  for (const Change& change : changes) {
    const int row = ledger.find_device(change.device.key.c_str());
    if (row < 0 || !ledger.set_cap(row, change.cap, error)) refuse(error.c_str());
  }
  show(changes, options);
}

}  // namespace

void add_limit_command(Command program) {
  const auto options = std::make_shared<LimitOptions>();
  Command command = program.add_subcommand("limit", "Change the cap of a tenant that runs");
  command.add_option("TENANT", options->tenant, "As fracgpu status names it").required();
  command.add_option("AMOUNT", options->amount, "8GiB, 512MiB, 50% or 0.5").required();
  command.add_option("--gpu", options->gpu, "On this one alone: an index, a UUID or a bus id");
  command.add_flag("--json", options->json, "For programs; amounts are in bytes");
  command.set_footer(kExamples);
  command.set_body([options] {
    limit(*options);
    return kOk;
  });
}

}  // namespace fracgpu::tools
