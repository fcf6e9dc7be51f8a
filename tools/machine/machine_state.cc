// Combines ledgers, claim table and drivers; see machine_state.h.
#include "tools/machine/machine_state.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include "shim/config/identity.h"
#include "tools/cli/plain_text.h"
#include "tools/machine/amd_partitions.h"
#include "tools/machine/driver_processes.h"

namespace fracgpu::tools {
namespace {

// The only tenant that this process may see, if it is in a container.
std::optional<std::string> own_tenant_in_container() {
  TenantName name;
  Message error;
  if (!in_container() || !tenant_name(name, error)) return std::nullopt;
  return name.c_str();
}

class MachineReader {
 public:
  explicit MachineReader(const Scope& scope) : scope_(scope) {}

  MachineState take() {
    read_ledgers();
    const std::vector<Gpu> gpus = list_gpus();
    for (const Gpu& gpu : gpus) {
      GpuState& state = gpu_of(gpu.key);
      if (!gpu.instance) state.index = gpu.index;
      state.number = gpu.number();
      state.divided = gpu.divided;
      state.instance = gpu.instance;
      if (gpu.board >= 0) {
        state.board = gpu.board;
        state.board_bus_id = board_bus_id(gpu);
      }
      state.mode = gpu.mode;
      state.physical = gpu.physical;
      state.driver_used = gpu.used;
    }
    for (const TenantUse& tenant : state_.tenants) add(tenant);
    add_claims();
    complain_of_unread();
    for (const Gpu& gpu : gpus) add_driver(gpu);
    tell_tenants();
    for (GpuState& gpu : state_.gpus) finish(gpu);
    leave_out_others();
    return std::move(state_);
  }

 private:
  void read_ledgers() {
    std::set<std::string> names;
    for (const std::string& name : tenant_names()) names.insert(name);
    for (const std::string& name : scope_.names) names.insert(name);
    for (const std::string& name : names) {
      try {
        state_.tenants.push_back(read_tenant(name, host_pids_));
      } catch (const std::runtime_error& error) {
        // A tenant that was not requested may have ended since it was listed.
        struct stat status;
        const bool asked_for =
            std::find(scope_.names.begin(), scope_.names.end(), name) != scope_.names.end();
        if (!asked_for && lstat((layout::kFilePrefix + name).c_str(), &status) != 0) continue;
        unread_[name] = error.what();
      }
    }
  }

  GpuState& gpu_of(const std::string& key) {
    for (GpuState& gpu : state_.gpus) {
      if (gpu.key == key) return gpu;
    }
    state_.gpus.push_back({.key = key});
    return state_.gpus.back();
  }

  static TenantOnGpu& tenant_of(GpuState& gpu, const std::string& name) {
    for (TenantOnGpu& tenant : gpu.tenants) {
      if (tenant.name == name) return tenant;
    }
    gpu.tenants.push_back({.name = name});
    return gpu.tenants.back();
  }

  void add(const TenantUse& tenant) {
    for (const DeviceUse& device : tenant.devices) {
      GpuState& gpu = gpu_of(device.key);
      gpu.physical = better_known(gpu.physical, device.physical);
      gpu.held += device.used;
      if (device.lives() && device.cap) gpu.capped += *device.cap;
      tenant_of(gpu, tenant.name).use = device;
    }
  }

  const std::string* instance_for(const Share& share) const {
    const auto found = std::find_if(state_.gpus.begin(), state_.gpus.end(), [&](const auto& gpu) {
      return share.instance && gpu.instance && gpu.instance->parent == share.key &&
             gpu.instance->gpu_instance == share.instance->instance;
    });
    return found == state_.gpus.end() ? nullptr : &found->key;
  }

  void add_claims() {
    try {
      if (!ClaimTable::exists()) return;
      for (const Launch& launch : ClaimTable().launches()) {
        if (launch.waiting) continue;
        for (const Share& share : launch.shares) {
          // An instance is claimed whole. Until it is made, its GPU stands for it.
          const std::string* const made = instance_for(share);
          const uint32_t eighths = made != nullptr ? claim_table_layout::kEighths : share.eighths;
          GpuState& gpu = gpu_of(made != nullptr ? *made : share.key);
          gpu.claimed_eighths += eighths;
          tenant_of(gpu, launch.tenant).claimed_eighths += eighths;
        }
      }
    } catch (const std::runtime_error& error) {
      state_.complaints.emplace_back(error.what());
    }
  }

  // A tenant that only has a claim has no ledger yet.
  void complain_of_unread() {
    for (const auto& [name, why] : unread_) {
      const bool claims =
          std::any_of(state_.gpus.begin(), state_.gpus.end(), [&name = name](const GpuState& gpu) {
            return std::any_of(gpu.tenants.begin(), gpu.tenants.end(),
                               [&](const TenantOnGpu& tenant) { return tenant.name == name; });
          });
      if (is_shown(name) && !claims) state_.complaints.push_back(why);
    }
  }

  // Adds the processes in the driver's list: tenants' processes, alive or dead, and outsiders.
  void add_driver(const Gpu& gpu) {
    GpuState& state = gpu_of(gpu.key);
    const auto processes = driver_processes(gpu);
    if (!processes) return;
    state.driver_tells = true;
    // Each process on a divided GPU is listed with its instance.
    if (gpu.divided) return;
    uint64_t sum = 0;
    for (const DriverProcess& process : *processes) {
      sum += process.bytes.value_or(0);
      if (!mark(state, process)) state.outsiders.push_back(outsider(process));
    }
    if (!state.driver_used) state.driver_used = sum;
  }

  // Records the process at the tenant's process. False if no tenant has it.
  static bool mark(GpuState& gpu, const DriverProcess& process) {
    bool found = false;
    for (TenantOnGpu& tenant : gpu.tenants) {
      if (!tenant.use) continue;
      for (ProcessUse& owner : tenant.use->processes) {
        const bool same =
            (owner.host_pid != 0 && owner.host_pid == process.name.host_pid) ||
            (owner.pid == process.name.pid && owner.pid_namespace == process.name.pid_namespace);
        if (!same || owner.foreign_importer || is_another(process.pid, owner)) continue;
        found = true;
        // An amount of 0 is impossible for a process with a context.
        const bool is_possible = process.bytes != 0 || owner.overhead == 0;
        if (is_possible) owner.driver_used = process.bytes;
      }
    }
    return found;
  }

  // Copies the drivers' amounts from the GPUs' tenants to the tenants themselves.
  void tell_tenants() {
    for (TenantUse& tenant : state_.tenants) {
      for (DeviceUse& device : tenant.devices) {
        device = *tenant_of(gpu_of(device.key), tenant.name).use;
      }
    }
  }

  // Corrects the size that the driver reports by the size that the library found. The library's
  // size is larger if it shows this command the tenant's cap. It is a little smaller if CUDA gives
  // less than NVML reports. A much smaller size would belong to another device.
  static uint64_t better_known(uint64_t told, uint64_t found) {
    return found > told || found > told - told / 32 ? found : told;
  }

  // Another process may have the PID of a dead process by now.
  static bool is_another(uint32_t pid, const ProcessUse& owner) {
    const uint64_t start = owner.alive ? 0 : start_time_on_host(pid);
    return start != 0 && start != owner.start_time;
  }

  // The start time of the process, by the wall clock.
  static uint64_t since(uint32_t pid) {
    const uint64_t ticks = start_time_on_host(pid);
    timespec boot;
    clock_gettime(CLOCK_BOOTTIME, &boot);
    const auto age =
        static_cast<uint64_t>(boot.tv_sec) - ticks / static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
    return ticks == 0 ? 0 : static_cast<uint64_t>(time(nullptr)) - age;
  }

  static Outsider outsider(const DriverProcess& process) {
    Outsider found{.pid = process.pid, .user = "?", .command = "?", .used = process.bytes};
    const std::string folder = "/proc/" + std::to_string(process.pid);
    struct stat status = {};
    if (stat(folder.c_str(), &status) != 0) return found;
    found.user = user_name(status.st_uid);
    found.since_unix_s = since(process.pid);
    found.command = command_of(process.pid);
    return found;
  }

  static void finish(GpuState& gpu) {
    std::stable_sort(
        gpu.tenants.begin(), gpu.tenants.end(), [](const TenantOnGpu& a, const TenantOnGpu& b) {
          const auto used = [](const TenantOnGpu& one) { return one.use ? one.use->used : 0; };
          return used(a) > used(b);
        });
    std::stable_sort(gpu.outsiders.begin(), gpu.outsiders.end(),
                     [](const Outsider& a, const Outsider& b) { return a.used > b.used; });
  }

  bool is_shown(const std::string& name) const {
    return scope_.names.empty()
               ? is_visible(name)
               : std::find(scope_.names.begin(), scope_.names.end(), name) != scope_.names.end();
  }
  bool is_visible(const std::string& name) const { return scope_.all || !own_ || *own_ == name; }

  void leave_out_others() {
    std::erase_if(state_.tenants, [&](const TenantUse& one) { return !is_shown(one.name); });
    for (GpuState& gpu : state_.gpus) {
      std::erase_if(gpu.tenants, [&](const TenantOnGpu& one) {
        return !is_shown(one.name) && !(scope_.neighbours && is_visible(one.name));
      });
    }
    // A request for certain tenants shows only their GPUs.
    if (scope_.names.empty()) return;
    std::erase_if(state_.gpus, [](const GpuState& gpu) { return gpu.tenants.empty(); });
  }

  const Scope& scope_;
  const std::optional<std::string> own_ = own_tenant_in_container();
  HostPids host_pids_;
  std::map<std::string, std::string> unread_;  // unreadable ledgers, and the reasons
  MachineState state_;
};

}  // namespace

const TenantUse* MachineState::tenant(const std::string& name) const {
  const auto found = std::find_if(tenants.begin(), tenants.end(),
                                  [&](const TenantUse& one) { return one.name == name; });
  return found == tenants.end() ? nullptr : &*found;
}

const GpuState* MachineState::gpu(const std::string& key) const {
  const auto found =
      std::find_if(gpus.begin(), gpus.end(), [&](const GpuState& one) { return one.key == key; });
  return found == gpus.end() ? nullptr : &*found;
}

MachineState look_at_machine(const Scope& scope) {
  return MachineReader(scope).take();
}

}  // namespace fracgpu::tools
