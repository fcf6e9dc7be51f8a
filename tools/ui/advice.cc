// Suggests what would have helped; see explanation.h. Every sentence follows from known numbers,
// from the refusal's record or from the present state, and says from which.
#include <fmt/core.h>

#include <algorithm>

#include "tools/ui/drawing.h"
#include "tools/ui/explanation.h"

namespace fracgpu::tools {
namespace {

class Advisor {
 public:
  Advisor(const MachineState& machine, const TenantUse& tenant, const RefusalUse& refusal)
      : machine_(machine), tenant_(tenant), refusal_(refusal), gpu_(machine.gpu(refusal.key)) {
    for (const DeviceUse& device : tenant.devices) {
      if (device.key == refusal.key) now_ = &device;
    }
    lives_ = now_ != nullptr && now_->lives();
  }

  std::vector<std::string> take() {
    switch (refusal_.reason) {
      case Reason::cap:
        of_cap();
        break;
      case Reason::driver:
        of_driver();
        break;
      case Reason::runtime:
        of_runtime();
        break;
      case Reason::ledger:
        of_ledger();
        break;
    }
    return std::move(lines_);
  }

 private:
  template <typename... Args>
  void say(fmt::format_string<Args...> pattern, Args&&... args) {
    lines_.push_back(fmt::format(pattern, std::forward<Args>(args)...));
  }

  // The present state decides, whatever the state was at the refusal.
  bool fits_now() const {
    return lives_ && now_->cap && refusal_.needed && now_->used <= *now_->cap &&
           *refusal_.needed <= *now_->cap - now_->used;
  }

  void of_cap() {
    if (!refusal_.needed || !refusal_.cap) return;
    const uint64_t cap = *refusal_.cap, needed = *refusal_.needed;
    const uint64_t free = cap - std::min(cap, refusal_.held);
    if (fits_now()) {
      say("nothing more: {} are free under the cap now, so that it would be granted",
          bytes(*now_->cap - now_->used));
    }
    larger_cap(refusal_.held > UINT64_MAX - needed ? UINT64_MAX : refusal_.held + needed);
    if (free > 0) say("a request of at most {}", bytes_at_most(free));
    others(cap, needed);
    if (refusal_.own > 0) {
      say("freeing some of the {} that the process itself held (what a framework keeps cached "
          "counts; PyTorch: torch.cuda.empty_cache())",
          bytes(refusal_.own));
    }
    overhead();
  }

  void larger_cap(uint64_t needed) {
    const uint64_t physical = gpu_ != nullptr ? gpu_->physical : 0;
    if (physical != 0 && needed > physical) {
      say("no cap: together with what was in use it is {}, and the GPU has {}", bytes(needed),
          bytes(physical));
      return;
    }
    if (needed >> 50 != 0) return;  // no GPU has that, whatever its size
    const std::string enough = amount_text(needed);
    const uint64_t others = gpu_ == nullptr ? 0 : gpu_->used() - std::min(gpu_->used(), now_used());
    const bool full = physical != 0 && needed > physical - std::min(physical, others);
    const char* const but =
        full ? " (but others use so much of the GPU now that the driver may have no room)" : "";
    if (lives_) {
      say("a larger cap: fracgpu limit {} {}{}{}", tenant_.name, enough,
          tenant_.devices.size() > 1 ? " --gpu " + shortest_name() : "", but);
    } else {
      say("a larger cap at its next start: FRACGPU_MEMORY_LIMIT={0} or fracgpu run --memory {0}{1}",
          enough, but);
    }
  }

  // The GPU's shortest name for the command: its number, unless a GPU of another vendor has the
  // same.
  std::string shortest_name() const {
    const auto same = [this](const GpuState& gpu) { return gpu.index == gpu_->index; };
    const bool alone = gpu_ != nullptr && gpu_->index &&
                       std::count_if(machine_.gpus.begin(), machine_.gpus.end(), same) == 1;
    return alone ? std::to_string(*gpu_->index) : refusal_.key;
  }

  uint64_t now_used() const { return now_ == nullptr ? 0 : now_->used; }

  // Names the process that held the most, if it is another one, and whether it held enough by
  // itself.
  void others(uint64_t cap, uint64_t needed) {
    if (held_the_most_itself(refusal_) || refusal_.largest == 0) return;
    const bool enough =
        needed <= cap && refusal_.held - std::min(refusal_.held, refusal_.largest) <= cap - needed;
    say("waiting for {} (PID {}) to free {}: it held {}, the most", refusal_.largest_command,
        refusal_.largest_pid, enough ? "some of it" : "what it has and others too",
        bytes(refusal_.largest));
  }

  void overhead() {
    if (now_ == nullptr) return;
    uint64_t sum = 0;
    int count = 0;
    for (const ProcessUse& each : now_->processes) {
      if (!each.alive || each.overhead == 0) continue;
      sum += each.overhead;
      ++count;
    }
    if (count > 1) {
      say("fewer processes: {} of them hold {} for contexts and code now", count, bytes(sum));
    }
    std::string importers;
    for (const ProcessUse& each : now_->processes) {
      if (!each.alive || each.imported == 0) continue;
      importers += fmt::format("{}{} (PID {})", importers.empty() ? "; importing are " : ", ",
                               each.command, pid_text(each.host_pid, each.pid));
    }
    for (const ProcessUse& each : now_->processes) {
      if (!each.orphaned) continue;
      say("closing what was imported from {} (PID {}), which is dead: {} of it are still in use{}",
          each.command, pid_text(each.host_pid, each.pid), bytes(each.used), importers);
    }
  }

  void of_driver() {
    say("another GPU, or less on this one by those who are not of this tenant: the cap had room");
    if (gpu_ == nullptr) return;
    uint64_t outside = 0;
    for (const Outsider& each : gpu_->outsiders) outside += each.used.value_or(0);
    if (!gpu_->outsiders.empty()) {
      const Outsider& most = gpu_->outsiders.front();
      say("ending or capping who is under no cap: {} hold {} there now, {} (PID {}) the most",
          gpu_->outsiders.size(), bytes(outside), most.command, most.pid);
    }
    if (gpu_->capped > gpu_->physical) {
      say("lower caps: those of this GPU's tenants come to {} now, and it has {}; "
          "fracgpu run --fraction never gives out more than there is",
          bytes(gpu_->capped), bytes(gpu_->physical));
    }
  }

  void of_runtime() {
    say("starting it again, if the cap was raised meanwhile: the runtime goes by the size that it "
        "saw when it started");
    say("a smaller request, or a larger cap before the start");
  }

  void of_ledger() {
    say("reading the line on the stderr of that process (or in its FRACGPU_LOG_FILE), which says "
        "what is wrong: the limit, the ceiling file or the ledger");
    say("if the ledger is damaged or was removed: ending all processes of the tenant, and "
        "fracgpu gc {}",
        tenant_.name);
  }

  const MachineState& machine_;
  const TenantUse& tenant_;
  const RefusalUse& refusal_;
  const GpuState* gpu_;
  const DeviceUse* now_ = nullptr;
  bool lives_ = false;
  std::vector<std::string> lines_;
};

}  // namespace

bool held_the_most_itself(const RefusalUse& refusal) {
  // The host PID of the process may have become known only after the refusal.
  return refusal.largest_pid == refusal.host_pid || refusal.largest_pid == refusal.pid;
}

std::vector<std::string> advice(const MachineState& machine, const TenantUse& tenant,
                                const RefusalUse& refusal) {
  return Advisor(machine, tenant, refusal).take();
}

}  // namespace fracgpu::tools
