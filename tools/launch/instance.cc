// See instance.h.
#include "tools/launch/instance.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>

#include "shim/base/clock.h"
#include "tools/cli/output.h"
#include "tools/launch/instance_nodes.h"
#include "tools/launch/instance_notes.h"
#include "tools/launch/launch_tree.h"
#include "tools/machine/mig_driver.h"

namespace fracgpu::tools {
namespace {

using claim_table_layout::MigPhase;
using State = MigResult::State;

// How long to wait for another place. Chosen for the case that another program makes instances at
// the same time.
constexpr uint64_t kSecondTry_ms = 10'000;
// How long a driver may count processes that have ended. Chosen: mostly they are gone at once.
constexpr uint64_t kLastProcess_ms = 10'000;
constexpr long kPause_ms = 50;

Gpu device_of(const std::string& gpu, uint32_t instance) {
  for (const Gpu& each : list_gpus()) {
    if (each.instance && each.instance->parent == gpu && each.instance->gpu_instance == instance) {
      return each;
    }
  }
  throw RunError(kRunFailed,
                 fmt::format("the driver does not show the MIG instance {} that it made of {}",
                             instance, gpu));
}

void wait_for_another(ClaimTable& table, const Claim& claim, std::vector<Share>& shares,
                      const std::string& why) {
  table.wait_again(claim);
  const uint64_t end = coarse_now_ms() + kSecondTry_ms;
  while (!table.served(claim, shares)) {
    if (coarse_now_ms() > end) throw RunError(kFull, why);
    sleep_ms(kPause_ms);
  }
}

MigResult destroy_when_unused(const Orphan& orphan, uint64_t patience_ms) {
  const uint64_t end = coarse_now_ms() + patience_ms;
  for (;;) {
    MigResult result = destroy_instance(orphan.gpu, orphan.instance);
    if (result.state != State::in_use || coarse_now_ms() >= end) return result;
    sleep_ms(kPause_ms);
  }
}

}  // namespace

std::optional<Gpu> obtain_instance(ClaimTable& table, const Claim& claim,
                                   std::vector<Share>& shares) {
  while (!shares.empty() && shares[0].instance) {
    const std::string gpu = shares[0].key;
    MigResult result;
    {
      const ClaimFile::Lock lock = table.lock_instances(shares[0].instance->gpu);
      const MigGrant grant = table.instance_of(claim);  // another launch may have made it meanwhile
      const InstanceNotes notes(table.path());
      if (grant.phase != MigPhase::made) notes.add(gpu, grant);
      result = make_instance(gpu, grant);
      if (result.state == State::done && grant.phase != MigPhase::made) {
        table.note_made(claim, result.instance);
      }
      if (result.state == State::no_room) notes.remove(gpu, grant);  // that instance is not ours
    }
    if (result.state == State::done) {
      const Gpu made = device_of(gpu, result.instance);
      provide_nodes(made);
      return made;
    }
    if (result.state != State::no_room) throw RunError(kRunFailed, result.why);
    wait_for_another(table, claim, shares, result.why);
  }
  return std::nullopt;
}

Destroyed destroy_orphans(ClaimTable& table, Stuck stuck) {
  Destroyed all;
  if (geteuid() != 0) return all;
  std::vector<Orphan> kept;  // kept, so that they are not taken again
  while (std::optional<Orphan> orphan = table.take_orphan()) {
    const ClaimFile::Lock lock = table.lock_instances(orphan->instance.gpu);
    const InstanceNotes notes(table.path());
    if (!notes.has(orphan->gpu, orphan->instance)) {
      table.drop(std::move(*orphan));  // none of our instances is there
      continue;
    }
    const MigResult result =
        destroy_when_unused(*orphan, stuck == Stuck::told ? kLastProcess_ms : 0);
    if (result.state == State::done) {
      notes.remove(orphan->gpu, orphan->instance);
      table.drop(std::move(*orphan));
      ++all.destroyed;
    } else {
      ++all.left;
      if (stuck == Stuck::told) complain(result.why + "; fracgpu gc tries again");
      kept.push_back(std::move(*orphan));
    }
  }
  return all;
}

}  // namespace fracgpu::tools
