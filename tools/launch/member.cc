// See member.h.
#include "tools/launch/member.h"

#include <errno.h>
#include <fmt/core.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "shim/config/identity.h"
#include "shim/ledger/grow_lock.h"
#include "shim/ledger/ledger_file.h"
#include "tools/cli/plain_text.h"
#include "tools/launch/instance.h"
#include "tools/launch/launch_tree.h"
#include "tools/machine/ledger_reader.h"
#include "tools/ui/explanation.h"

namespace fracgpu::tools {
namespace {

constexpr size_t kHoldersShown = 4;  // of one GPU

std::string age_text(uint64_t since_unix_s) {
  const auto now = static_cast<uint64_t>(time(nullptr));
  const uint64_t s = now > since_unix_s ? now - since_unix_s : 0;
  if (s < 120) return fmt::format("{} s", s);
  if (s < 7200) return fmt::format("{} min", s / 60);
  return fmt::format("{} h", s / 3600);
}

}  // namespace

std::string tenant_or_new(const std::string& name) {
  if (name.empty()) {
    timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return fmt::format("run-{}-{}{:03}", getpid(), now.tv_sec, now.tv_nsec / 1'000'000);
  }
  if (is_tenant_name(name)) return name;
  throw std::runtime_error(
      fmt::format("{} is not a tenant name; accepted: 1 to {} letters, digits, '-', '_' or "
                  "'.', not starting with '.'",
                  fracgpu::quoted(name).view(), layout::kNameBytes - 1));
}

void check_caps_of_running(const std::string& tenant, const Request& request,
                           const std::vector<Share>& shares) {
  LedgerFile file;
  Message error;
  if (file.open_existing(tenant.c_str(), LedgerFile::Access::read, error) !=
      LedgerFile::Result::ok) {
    return;  // the library reports what is wrong with a file that exists
  }
  const Descriptor fd(file.reopen(error));
  if (fd.get() < 0 || !LedgerFile::any_slot_is_alive(fd.get())) return;
  for (const DeviceUse& device : read_tenant(tenant).devices) {
    for (const Gpu& gpu : request.granted(shares)) {
      const auto cap = request.cap_on(gpu, shares);
      if (gpu.key != device.key || !cap) continue;
      const uint64_t asked = cap->of(device.physical);
      if (device.cap && *device.cap == asked) continue;
      throw std::runtime_error(fmt::format(
          "tenant {} runs already with another cap on {}, {}, and this launch asks for {}; ask for "
          "the same, or take another name",
          tenant, gpu.label(), device.cap ? human_bytes(*device.cap).c_str() : "none",
          human_bytes(asked).c_str()));
    }
  }
}

Removal remove_dead_ledger(const std::string& tenant) {
  using State = Removal::State;
  if (tenant.empty() || tenant.find('/') != tenant.npos) {
    return {State::failed,
            fmt::format("{} is not a tenant's name", fracgpu::quoted(tenant).view())};
  }
  LedgerFile file;
  Message error;
  const auto opened = file.open_existing(tenant.c_str(), LedgerFile::Access::read, error);
  if (opened == LedgerFile::Result::absent) return {State::absent};
  if (opened == LedgerFile::Result::failed) return {State::failed, error.c_str()};
  // No process joins while we hold the lock. A process that had opened the file before starts
  // again.
  const GrowLock lock(file);
  if (!lock) return {State::failed, lock.error().c_str()};
  if (LedgerFile::any_slot_is_alive(lock.fd())) return {State::in_use};
  if (!file.is_current()) return {State::absent};
  if (unlink(file.path()) == 0) return {State::removed};
  if (errno == EPERM || errno == EACCES) {
    return {State::failed,
            fmt::format("{} belongs to another user; only that user and root may remove it",
                        file.path())};
  }
  return {State::failed, fmt::format("cannot remove {}: {}", file.path(), strerror(errno))};
}

namespace {

// The environment of a launch that has been served. Makes its MIG instance first, if it gets one.
Changes changes_for(const std::string& tenant, const Request& request, const std::vector<Gpu>& all,
                    ClaimTable& table, const Claim& claim, std::vector<Share>& shares) {
  if (const std::optional<Gpu> instance = obtain_instance(table, claim, shares)) {
    const std::vector<Gpu> visible = {*instance};
    const uint64_t cap =
        std::min(request.instance_cap().value_or(instance->physical), instance->physical);
    // Caps all other GPUs at next to nothing, in case the program undoes the choice of visible
    // devices.
    Changes changes =
        tenant_environment(tenant, fmt::format("512b,{}={}b", instance->key, cap), all, &visible);
    changes["NVIDIA_VISIBLE_DEVICES"] = instance->key;
    return changes;
  }
  const std::vector<Gpu> gpus = request.granted(shares);
  return tenant_environment(tenant, request.limit(shares), all,
                            request.hides_others() ? &gpus : nullptr);
}

}  // namespace

int run_member(const std::string& tenant, const std::vector<std::string>& command,
               const Request& request, const std::vector<Gpu>& all, Claim claim,
               std::vector<Share> shares, bool explain) {
  ClaimTable table(request.view());
  int status = 0;
  try {
    const Changes changes = changes_for(tenant, request, all, table, claim, shares);
    status = run_tree(command, changes, claim.life.get());
  } catch (...) {
    table.leave(std::move(claim));
    destroy_orphans(table);
    throw;
  }
  if (explain) complain_of_refusals(tenant);
  remove_dead_ledger(tenant);
  table.leave(std::move(claim));
  if (request.may_be_instance()) destroy_orphans(table);
  return status;
}

int run_inside(const OuterCap& outer, const Inside& inside, const std::vector<std::string>& command,
               const std::vector<Gpu>& all, bool explain) {
  Changes changes = tenant_environment(outer.tenant, outer.limit.value_or(""), all,
                                       inside.hides_others ? &inside.gpus : nullptr);
  Claim claim;
  if (!outer.claim_table.empty()) {
    // A process that closes every descriptor must not leave the claim table. Processes that it
    // starts must not read another table either.
    changes["FRACGPU_BOOK"] = outer.claim_table;
    ClaimRequest wanted;
    wanted.tenant = outer.tenant;
    wanted.asked = outer.asked;
    claim = ClaimTable(outer.claim_table).enter(wanted);
  }
  const int status = run_tree(command, changes, claim.life.get());
  if (explain) complain_of_refusals(outer.tenant);
  return status;
}

std::string placement_text(const Request& request, const std::vector<Share>& shares) {
  std::string text;
  for (const Share& share : shares) {
    if (!share.instance) continue;
    const auto cap = request.instance_cap();
    text += fmt::format("{}: {}, cap {}\n", request.label_of(share), request.instance_text(share),
                        cap ? human_bytes(*cap).c_str() : "all of it");
  }
  for (const Gpu& gpu : request.granted(shares)) {
    text += gpu.label() + ":";
    for (const Share& share : shares) {
      if (share.key == gpu.key) text += fmt::format(" {} of it,", fraction_text(share.eighths));
    }
    const auto cap = request.cap_on(gpu, shares);
    text += !cap ? " cap as the environment says"
            : gpu.physical == 0 && cap->billionths != 0
                ? fmt::format(" cap {:.1f} %", static_cast<double>(cap->billionths) / 1e7)
                : fmt::format(
                      " cap {}",
                      human_bytes(cap->of(gpu.physical == 0 ? UINT64_MAX : gpu.physical)).c_str());
    text += "\n";
  }
  return text;
}

std::string holders_text(const std::string& tenant, const Request& request,
                         const std::vector<Launch>& launches) {
  std::string text;
  for (const Gpu& gpu : request.candidates()) {
    std::vector<std::string> holders;
    for (const Launch& launch : launches) {
      for (const Share& share : launch.shares) {
        if (share.key != gpu.key || launch.tenant == tenant) continue;
        const std::string part =
            share.instance ? request.instance_text(share) : fraction_text(share.eighths);
        holders.push_back(fmt::format("{} by {} (PID {}, {}, {}, {})", part, launch.tenant,
                                      launch.pid, user_name(launch.uid), launch.command,
                                      age_text(launch.since_unix_s)));
      }
    }
    std::string list;
    for (size_t i = 0; i < std::min(holders.size(), kHoldersShown); ++i) {
      list += (i == 0 ? "" : "; ") + holders[i];
    }
    if (holders.size() > kHoldersShown) {
      list += fmt::format("; and {} more", holders.size() - kHoldersShown);
    }
    const uint32_t others = request.slices_of_others(gpu.key, launches);
    if (others > 0) {
      list += fmt::format("{}{} memory slices by instances of others (--mig existing uses one)",
                          list.empty() ? "" : "; ", others);
    }
    text += fmt::format("  {}: {}\n", gpu.label(), list.empty() ? "free" : list);
  }
  const auto waiting = std::count_if(launches.begin(), launches.end(), [&](const Launch& launch) {
    return launch.waiting && launch.tenant != tenant;
  });
  if (waiting > 0) text += fmt::format("  waiting already: {}\n", waiting);
  return text;
}

}  // namespace fracgpu::tools
