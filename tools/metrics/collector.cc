// Makes samples of the ledgers, the claim table and the driver's lists; see collector.h.
#include "tools/metrics/collector.h"

#include <fmt/core.h>

#include <map>

#include "shim/base/clock.h"
#include "shim/config/identity.h"
#include "tools/claims/claim_table.h"
#include "tools/doctor/probe.h"
#include "tools/doctor/tenant_processes.h"
#include "tools/machine/ledger_reader.h"
#include "tools/metrics/exposition.h"

namespace fracgpu::tools {
namespace {

// NVML starts in 10 to 300 ms on eight GPUs, and has been seen to hang (go-nvml#152). Prometheus
// gives up a scrape after 10 s; the ledgers need the rest of that time.
constexpr int kDriverDeadline_s = 5;
constexpr uint64_t kLeaveDriverAlone_ms = 60'000;

constexpr auto kGauge = Family::Type::gauge;
constexpr auto kCounter = Family::Type::counter;

// Every metric, in the order of the page.
struct Families {
  Family build{"fracgpu_build_info", kGauge,
               "Always 1; the version of the command that told this."};
  Family driver_up{"fracgpu_driver_up", kGauge,
                   "1 if the GPU drivers answered in time, 0 if one hung or crashed."};
  Family gpu_info{"fracgpu_gpu_info", kGauge,
                  "Always 1; the vendor of a GPU and the number that the vendor's tool gives it."};
  Family mig_info{
      "fracgpu_mig_instance_info", kGauge,
      "Always 1; a MIG instance, which is a GPU in all other metrics, and the GPU that it "
      "is a part of."};
  Family amd_info{
      "fracgpu_amd_partition_info", kGauge,
      "Always 1; a GPU of AMD's, the bus id of the board that it is or is a part of, and "
      "the board's modes, where its driver tells them."};
  Family gpu_memory{"fracgpu_gpu_memory_bytes", kGauge, "Memory of a GPU, as its driver says."};
  Family gpu_claimed{"fracgpu_gpu_claimed_ratio", kGauge,
                     "Share of a GPU that launches have claimed, 0 to 1."};
  Family gpu_untracked{"fracgpu_gpu_untracked_processes", kGauge,
                       "Processes that hold memory of a GPU, as its driver says, and that no "
                       "tenant's ledger knows: they are under no cap."};
  Family gpu_untracked_bytes{"fracgpu_gpu_untracked_bytes", kGauge,
                             "Memory of a GPU that those processes hold, where its driver tells."};
  Family waiting{"fracgpu_launches_waiting", kGauge, "Launches that wait for a share of a GPU."};
  Family claim{"fracgpu_tenant_claim_ratio", kGauge,
               "Share of a GPU that a tenant has claimed, 0 to 1."};
  Family created{"fracgpu_tenant_created_timestamp_seconds", kGauge,
                 "When a tenant's ledger was made."};
  Family unreadable{"fracgpu_ledgers_unreadable", kGauge,
                    "Ledgers, and the claim table, that cannot be read or trusted."};
  Family cap{"fracgpu_tenant_cap_bytes", kGauge,
             "The most memory of a GPU that a tenant may hold; none where it is not capped."};
  Family used{"fracgpu_tenant_used_bytes", kGauge,
              "Memory of a GPU that a tenant holds: its living processes, and what the dead "
              "exported."};
  Family peak{"fracgpu_tenant_peak_bytes", kGauge,
              "The most that a tenant held on a GPU, as sampled when leases grew."};
  Family needed{"fracgpu_tenant_needed_bytes", kGauge,
                "The most that a tenant needed of a GPU while it was recorded, without what its "
                "pools could have given back; none where nobody recorded it."};
  Family refusals{"fracgpu_tenant_refusals_total", kCounter,
                  "Requests for memory of a GPU that were refused to a tenant, by reason."};
  Family damaged{"fracgpu_tenant_ledger_damaged", kGauge,
                 "1 if something else wrote into a tenant's ledger: nothing is granted from it."};
  Family processes{"fracgpu_tenant_processes", kGauge,
                   "Processes of a tenant on a GPU: alive, dead while others still hold what they "
                   "exported, or importers of other tenants that hold it."};
  Family process_used{"fracgpu_process_used_bytes", kGauge,
                      "Memory of a GPU that a process holds."};
  Family process_peak{"fracgpu_process_peak_bytes", kGauge,
                      "The most that a process held on a GPU."};
  Family process_overhead{"fracgpu_process_implicit_bytes", kGauge,
                          "What a process holds that no call asked for: contexts and the like."};
  Family process_leased{"fracgpu_process_leased_bytes", kGauge,
                        "What a process may hold without asking its tenant."};
  Family process_allocations{"fracgpu_process_allocations", kGauge,
                             "Allocations that a process had on a GPU when it last said so."};
  Family process_allocations_at{"fracgpu_process_allocations_timestamp_seconds", kGauge,
                                "When a process last said how many allocations it has."};

  std::string text() const {
    std::string all;
    for (const Family* family : {&build,
                                 &driver_up,
                                 &gpu_info,
                                 &mig_info,
                                 &amd_info,
                                 &gpu_memory,
                                 &gpu_claimed,
                                 &gpu_untracked,
                                 &gpu_untracked_bytes,
                                 &waiting,
                                 &claim,
                                 &created,
                                 &unreadable,
                                 &cap,
                                 &used,
                                 &peak,
                                 &needed,
                                 &refusals,
                                 &damaged,
                                 &processes,
                                 &process_used,
                                 &process_peak,
                                 &process_overhead,
                                 &process_leased,
                                 &process_allocations,
                                 &process_allocations_at}) {
      all += family->text();
    }
    return all;
  }
};

// A PID that only its own container knows is not unique without its namespace.
std::string pid_of(const ProcessUse& process) {
  return process.host_pid != 0 ? std::to_string(process.host_pid)
                               : fmt::format("{}@{}", process.pid, process.pid_namespace);
}

void add_process(const ProcessUse& process, const Labels& device, Families& families) {
  Labels labels = device;
  labels.insert(labels.end(),
                {{"pid", pid_of(process)}, {"user", process.user}, {"command", process.command}});
  families.process_used.add(labels, process.used);
  families.process_peak.add(labels, process.peak);
  families.process_overhead.add(labels, process.overhead);
  families.process_leased.add(labels, process.leased);
  if (!process.allocations) return;
  families.process_allocations.add(labels, *process.allocations);
  families.process_allocations_at.add(labels, process.allocations_unix_s);
}

void add_refusals(const RefusalCounts& counts, const Labels& device, Families& families) {
  for (size_t i = 0; i < counts.by_reason.size(); ++i) {
    Labels labels = device;
    labels.emplace_back("reason", name_of(static_cast<Reason>(i)));
    families.refusals.add(labels, counts.by_reason[i]);
  }
}

void add_device(const DeviceUse& device, const Labels& labels, bool with_processes,
                Families& families) {
  if (device.cap) families.cap.add(labels, *device.cap);
  families.used.add(labels, device.used);
  families.peak.add(labels, device.peak);
  if (device.needed) families.needed.add(labels, *device.needed);
  add_refusals(device.refusals, labels, families);
  families.damaged.add(labels, uint64_t{device.damaged});
  uint64_t alive = 0, exported = 0, importers = 0;
  for (const ProcessUse& process : device.processes) {
    if (process.foreign_importer) {
      importers += process.alive ? 1 : 0;
      continue;
    }
    alive += process.alive ? 1 : 0;
    exported += process.orphaned ? 1 : 0;
    if (with_processes && (process.alive || process.orphaned)) {
      add_process(process, labels, families);
    }
  }
  for (const auto& [state, number] : {std::pair("alive", alive), std::pair("exported", exported),
                                      std::pair("importer", importers)}) {
    Labels of_state = labels;
    of_state.emplace_back("state", state);
    families.processes.add(of_state, number);
  }
}

void add_tenant(const TenantUse& tenant, bool with_processes, Families& families) {
  families.created.add({{"tenant", tenant.name}}, tenant.created_unix_s);
  for (const DeviceUse& device : tenant.devices) {
    add_device(device, {{"tenant", tenant.name}, {"gpu", device.key}}, with_processes, families);
  }
  add_refusals(tenant.refusals_elsewhere, {{"tenant", tenant.name}, {"gpu", "unknown"}}, families);
}

// The key of the MIG instance that a launch holds, always whole; empty if the driver does not show
// the instance.
std::string instance_for(const Share& share, const Json& gpus) {
  for (const Json& gpu : gpus) {
    if (gpu.value("key", "") != share.key) continue;
    for (const Json& each : gpu["instances"]) {
      if (each.value("gpu_instance", ~0U) == share.instance->instance) return each.value("key", "");
    }
  }
  return "";
}

void add_claims(const std::vector<Launch>& launches, const Json& gpus, Families& families) {
  std::map<std::string, uint32_t> of_gpu;
  std::map<std::pair<std::string, std::string>, uint32_t> of_tenant;
  uint64_t waiting = 0;
  for (const Launch& launch : launches) {
    waiting += launch.waiting ? 1 : 0;
    for (const Share& share : launch.shares) {
      const std::string key = share.instance ? instance_for(share, gpus) : share.key;
      const uint32_t eighths = share.instance ? claim_table_layout::kEighths : share.eighths;
      if (key.empty()) continue;
      of_gpu[key] += eighths;
      of_tenant[{launch.tenant, key}] += eighths;
    }
  }
  const auto ratio = [](uint32_t eighths) {
    return eighths / double{claim_table_layout::kEighths};
  };
  for (const auto& [gpu, eighths] : of_gpu)
    families.gpu_claimed.add({{"gpu", gpu}}, ratio(eighths));
  for (const auto& [whose, eighths] : of_tenant) {
    families.claim.add({{"tenant", whose.first}, {"gpu", whose.second}}, ratio(eighths));
  }
  families.waiting.add({}, waiting);
}

void add_gpus(const Json& gpus, const TenantProcesses& tenants, Families& families) {
  for (const auto& gpu : gpus) {
    const Labels labels = {{"gpu", gpu.value("key", "")}};
    families.gpu_info.add({{"gpu", gpu.value("key", "")},
                           {"vendor", gpu.value("vendor", "")},
                           {"index", std::to_string(gpu.value("index", 0))}},
                          uint64_t{1});
    families.gpu_memory.add(labels, gpu.value("physical", uint64_t{0}));
    for (const Json& each : gpu["instances"]) {
      const std::string key = each.value("key", "");
      families.mig_info.add({{"gpu", key},
                             {"parent", gpu.value("key", "")},
                             {"index", each.value("number", "")},
                             {"profile", each.value("profile", "")}},
                            uint64_t{1});
      families.gpu_memory.add({{"gpu", key}}, each.value("physical", uint64_t{0}));
    }
    if (const std::string mode = gpu.value("mode", ""); !mode.empty()) {
      families.amd_info.add({{"gpu", gpu.value("key", "")},
                             {"parent", gpu.value("board_bus_id", "")},
                             {"compute", mode.substr(0, mode.find('/'))},
                             {"memory", mode.substr(mode.find('/') + 1)}},
                            uint64_t{1});
    }
    std::map<uint32_t, uint64_t> others;  // a process may be in several lists
    for (const auto& process : gpu["processes"]) {
      const uint32_t pid = process.value("pid", 0U);
      if (tenants.knows(pid)) continue;
      others[pid] = process.value("used", uint64_t{0});
    }
    uint64_t bytes = 0;
    for (const auto& [pid, used] : others) bytes += used;
    families.gpu_untracked.add(labels, uint64_t{others.size()});
    families.gpu_untracked_bytes.add(labels, bytes);
  }
}

}  // namespace

std::string Collector::collect() {
  Families families;
  families.build.add({{"version", FRACGPU_VERSION}}, uint64_t{1});

  // The driver's list comes first: a process that joins a tenant meanwhile is in the ledgers.
  Json gpus = Json::array();
  bool driver_up = false;
  if (coarse_now_ms() >= ask_driver_again_ms_) {
    const ProbeReport report = run_probe("gpus", without_library(), kDriverDeadline_s);
    driver_up = report.done();
    if (driver_up) gpus = report.told["gpus"];
    if (!driver_up) ask_driver_again_ms_ = coarse_now_ms() + kLeaveDriverAlone_ms;
  }
  families.driver_up.add({}, uint64_t{driver_up});

  uint64_t unreadable = 0;
  TenantProcesses tenants;
  HostPids host_pids;
  for (const std::string& name : tenant_names()) {
    try {
      if (!is_tenant_name(name)) throw std::runtime_error("no tenant has such a name");
      const TenantUse tenant = read_tenant(name, host_pids);
      tenants.add(tenant);
      add_tenant(tenant, with_processes_, families);
    } catch (const std::exception&) {
      ++unreadable;  // fracgpu doctor says why
    }
  }
  try {
    add_claims(ClaimTable::exists() ? ClaimTable().launches() : std::vector<Launch>(), gpus,
               families);
  } catch (const std::exception&) {
    ++unreadable;
  }
  families.unreadable.add({}, unreadable);
  add_gpus(gpus, tenants, families);
  return families.text();
}

}  // namespace fracgpu::tools
