// Limits, namespaces and ledgers; see checks.h.
#include <errno.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "fracgpu/ledger_layout.h"
#include "shim/base/environment.h"
#include "shim/config/ceiling.h"
#include "shim/config/environment_limits.h"
#include "shim/config/identity.h"
#include "tools/cli/descriptor.h"
#include "tools/cli/plain_text.h"
#include "tools/doctor/checks.h"
#include "tools/machine/ledger_reader.h"

namespace fracgpu::tools {
namespace {

using State = Finding::State;

constexpr char kFolder[] = "/dev/shm";
constexpr uint64_t kEnough = 16 * layout::kSmallestBacked;  // for some tenants, or a large one

// The host's namespace has a well-known number (include/linux/proc_ns.h).
bool in_host_ipc_namespace() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/ns/ipc", error) == "ipc:[4026531839]";
}

Finding check_folder() {
  constexpr const char* kCheck = "ledger";
  struct statfs status = {};
  if (statfs(kFolder, &status) != 0) {
    return {State::fail, kCheck, fmt::format("there is no {}: {}", kFolder, strerror(errno)),
            "mount a tmpfs there; without it all GPU memory is refused under a cap"};
  }
  const uint64_t free = status.f_bavail * static_cast<uint64_t>(status.f_bsize);
  const Descriptor file(open(kFolder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file.get() < 0 && errno != EOPNOTSUPP && errno != EISDIR) {
    return {State::fail, kCheck,
            fmt::format("no file can be made in {}: {}", kFolder, strerror(errno)),
            "mount it writable for everybody (mode 1777); without it all GPU memory is refused "
            "under a cap"};
  }
  const std::string sizes =
      fmt::format("{} of {} free", human_bytes(free).view(),
                  human_bytes(status.f_blocks * static_cast<uint64_t>(status.f_bsize)).view());
  if (free < layout::kSmallestBacked) {
    return {State::fail, kCheck,
            fmt::format("{} is full: {}, and a ledger needs {}", kFolder, sizes,
                        human_bytes(layout::kSmallestBacked).view()),
            "free something there, or docker run --shm-size=1g"};
  }
  if (free < kEnough) {
    return {State::warn, kCheck, fmt::format("{} is nearly full: {}", kFolder, sizes),
            "free something there, or docker run --shm-size=1g"};
  }
  if (status.f_type != TMPFS_MAGIC) {
    return {State::warn, kCheck,
            fmt::format("{} is no tmpfs: ledgers would outlive a restart, and locks may not work",
                        kFolder),
            "mount a tmpfs there"};
  }
  return {State::ok, kCheck, fmt::format("{} can be written, {}", kFolder, sizes)};
}

// The owner of this tenant's ledger file. Any of its users may have made it, and so may another
// user before them.
Finding check_owner(const TenantUse& tenant) {
  constexpr const char* kCheck = "ledger";
  const uint32_t owner = tenant.owner_uid;
  const std::string text =
      fmt::format("{} belongs to {}, mode {:04o}", tenant.path, user_name(owner), tenant.mode);
  if (owner == 0 || owner == geteuid() || tenant.users.contains(owner)) {
    return {State::ok, kCheck, text};
  }
  return {State::warn, kCheck,
          text +
              ": that is neither root, nor you, nor a user of the tenant's running processes, so "
              "somebody else may have made it first",
          "end the tenant's processes, then as root: fracgpu gc; who starts next makes it anew"};
}

}  // namespace

namespace {

// "FRACGPU_MEMORY_LIMIT is "8GiB", NVIDIA_GPU_MEMORY_LIMIT is "4096""
std::string with_values(const std::vector<std::string>& variables) {
  std::string text;
  for (const std::string& name : variables) {
    const char* const value = trusted_environment(name.c_str());
    text += fmt::format("{}{} is {}", text.empty() ? "" : ", ", name,
                        fracgpu::quoted(value == nullptr ? "" : value).view());
  }
  return text;
}

}  // namespace

Findings check_limits(Setup& setup) {
  constexpr const char* kCheck = "limits";
  const std::vector<std::string> variables = limit_variables();
  Message error;
  Findings findings;
  if (!read_ceiling(kCeilingFile, setup.ceiling, error)) {
    setup.sound = false;
    findings.push_back({State::fail, kCheck, error.c_str(),
                        "repair the file; until then all GPU memory is refused"});
  }
  if (!setup.asked.read(error)) {
    setup.sound = false;
    findings.push_back({State::fail, kCheck, error.c_str(),
                        "repair the variable; until then all GPU memory is refused"});
  }
  setup.asks_for_cap = !variables.empty() || !setup.sound || !setup.ceiling.empty();
  if (setup.asks_for_cap) {
    TenantName name;
    if (tenant_name(name, error)) {
      setup.tenant = name.c_str();
    } else {
      setup.sound = false;
      findings.push_back({State::fail, kCheck, error.c_str(),
                          "set FRACGPU_TENANT to such a name, or repair the file that gives it"});
    }
  }
  if (!findings.empty()) return findings;
  if (!setup.asks_for_cap) {
    return {{State::warn, kCheck, "no limit is configured: every GPU may be used in full",
             fmt::format("set FRACGPU_MEMORY_LIMIT=8GiB, or write a limit into {}", kCeilingFile)}};
  }
  findings.push_back(
      {State::ok, kCheck,
       fmt::format("{}, {} {}; tenant {}",
                   variables.empty() ? fmt::format("{} is not set", kLimitVariable)
                                     : with_values(variables),
                   kCeilingFile, setup.ceiling.empty() ? "is not there" : "sets a ceiling",
                   setup.tenant)});
  if (!setup.asked.unenforced().empty()) {
    findings.push_back({State::warn, kCheck,
                        fmt::format("{} is set: fracgpu limits memory only, not the use of compute",
                                    setup.asked.unenforced()),
                        "unset it, or share compute by MPS or MIG"});
  }
  const char* const xnack = vendor_environment("HSA_XNACK");
  if (xnack != nullptr && strcmp(xnack, "1") == 0) {
    findings.push_back({State::warn, kCheck,
                        "HSA_XNACK=1: on AMD GPUs plain malloc memory moves to the device when it "
                        "is touched there, and that is not held to the cap",
                        "unset HSA_XNACK for programs under a cap"});
  }
  return findings;
}

Findings check_namespaces() {
  Findings findings;
  findings.push_back(
      in_host_pid_namespace()
          ? Finding{State::ok, "pid-namespace", "the host's: ledgers name host PIDs"}
          : Finding{State::warn, "pid-namespace",
                    "a private one: the cap holds, but ledgers name no host PIDs, and what KFD "
                    "says of AMD processes cannot be read",
                    "docker run --pid=host; in Kubernetes hostPID: true"});
  findings.push_back(
      in_host_ipc_namespace()
          ? Finding{State::ok, "ipc-namespace", "the host's: tools there see this tenant"}
          : Finding{State::warn, "ipc-namespace",
                    "a private one: the cap holds, but tools on the host do not see this tenant, "
                    "and other containers of the same name have a cap of their own",
                    "docker run --ipc=host; in Kubernetes hostIPC: true"});
  return findings;
}

Findings check_ledgers(const Setup& setup) {
  constexpr const char* kCheck = "ledger";
  static constexpr size_t kMostNamed = 3;
  Findings findings = {check_folder()};
  size_t sound = 0;
  std::vector<std::string> damaged, unusable;
  for (const std::string& name : tenant_names()) {
    try {
      const TenantUse tenant = read_tenant(name);
      if (tenant.name == setup.tenant) findings.push_back(check_owner(tenant));
      const bool is_damaged = std::any_of(tenant.devices.begin(), tenant.devices.end(),
                                          [](const DeviceUse& device) { return device.damaged; });
      sound += is_damaged ? 0 : 1;
      if (!is_damaged) continue;
      if (tenant.name != setup.tenant) {
        damaged.push_back(tenant.name);
        continue;
      }
      findings.push_back({State::fail, kCheck,
                          "something else wrote into the ledger of this tenant: nothing is "
                          "granted from it",
                          "end its processes; fracgpu gc then removes the file"});
    } catch (const std::exception& error) {
      unusable.emplace_back(error.what());
    }
  }
  const auto first_of = [](const std::vector<std::string>& names, const char* separator) {
    std::string text;
    for (size_t i = 0; i < std::min(names.size(), kMostNamed); ++i) {
      text += (i == 0 ? "" : separator) + names[i];
    }
    if (names.size() > kMostNamed)
      text += fmt::format("{}{} more", separator, names.size() - kMostNamed);
    return text;
  };
  if (!damaged.empty()) {
    findings.push_back({State::warn, kCheck,
                        fmt::format("something else wrote into the ledgers of {}: nothing is "
                                    "granted from them",
                                    first_of(damaged, ", ")),
                        "end their processes; fracgpu gc then removes the files"});
  }
  if (!unusable.empty()) {
    findings.push_back({State::warn, kCheck, first_of(unusable, "; "),
                        "remove such files when nothing of their tenants runs"});
  }
  if (sound > 0) findings.push_back({State::ok, kCheck, fmt::format("sound ledgers: {}", sound)});
  return findings;
}

}  // namespace fracgpu::tools
