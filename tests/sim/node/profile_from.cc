// Turns the facts of a report into arguments and variables; see profile_from.h. What the node can
// vary is a row of kVaried, what it cannot a row of kFixed.
#include "sim/node/profile_from.h"

#include <cmath>
#include <fstream>
#include <sstream>

#include "sim/node/node_layout.h"
#include "tests/hardware/report.h"

namespace sim {
namespace {

using hardware::Facts;
using hardware::Json;

constexpr double kMiB = 1 << 20;

enum class As {
  text,
  number,
  mib,          // of bytes, rounded up to whole MiB
  milliseconds  // rounded to whole ones
};

// A fact that the node can have: by an option of `simnode create`, or by a variable.
struct Varied {
  const char* fact;
  As as;
  const char* by;
  double least, most;  // of numbers: what cannot be is refused
};
constexpr Varied kNvidia[] = {
    {"memory.cuda_total", As::mib, "--total-mib", 256 * kMiB, double(kMaxDeviceBytes)},
    {"context.first_bytes", As::mib, "--context-mib", 0, 8192 * kMiB},
    {"death.in_use_ms", As::milliseconds, "--linger-ms", 0, 600000},
    {"driver.version", As::text, "--driver", 0, 0},
    {"driver.module_flavour", As::text, "--modules", 0, 0},
    {"driver.cuda_version", As::number, "FRACGPU_SIM_DRIVER_VERSION", 2000, 99000},
    {"memory.nvml_reserved", As::mib, "FRACGPU_SIM_NVML_RESERVED_MIB", 0, 65536 * kMiB},
    {"context.module_bytes", As::mib, "FRACGPU_SIM_MODULE_MIB", 0, 8192 * kMiB},
};
constexpr Varied kAmd[] = {
    {"amd.vram_bytes", As::mib, "--total-mib", 256 * kMiB, double(kMaxDeviceBytes)},
    {"amd.runtime_bytes", As::mib, "--context-mib", 0, 8192 * kMiB},
    {"amd.death_listed_ms", As::milliseconds, "--linger-ms", 0, 600000},
};

// A fact that is always the same on the node.
struct Fixed {
  const char* fact;
  const char* value;
};
constexpr Fixed kFixed[] = {
    {"memory.nvml_above_cuda", "0"},
    {"memory.granularity", "2097152"},
    {"list.main_thread.named_as", "pid"},
    {"list.main_thread.bytes_missing", "0"},
    {"list.main_thread.entries", "1"},
    {"list.other_thread.named_as", "pid"},
    {"list.other_thread.bytes_missing", "0"},
    {"list.private_namespace.named_as", "pid"},
    {"list.private_namespace.bytes_missing", "0"},
    {"context.local_memory_bytes", "0"},
    {"sweep.page_bytes", "2097152"},
    {"sweep.pool_chunk_bytes", "33554432"},
    {"sharing.ipc_importer_bytes", "0"},
    {"sharing.vmm_importer_bytes", "0"},
    {"sharing.pool_importer_bytes", "0"},
    {"capture.plain.harmful_when_relaxed", "none"},
    {"entry_points.plain.differing", "0"},
    {"amd.block_bytes", "2097152"},
    {"amd.node_differs", "false"},
    {"amd.uid_differs", "false"},
    {"amd.runtime_total_differs", "0"},
    {"amd.ipc_importer_bytes", "0"},
};

// The node's profile for a product: by its name, else by its generation.
struct Base {
  const char* part_of_name;
  const char* generation;
  const char* profile;
};
constexpr Base kBases[] = {
    {"A100-SXM4-40GB", "", "a100-40gb"},
    {"A100", "", "a100-80gb"},
    {"H100", "", "h100-80gb"},
    {"H200", "", "h200"},
    {"Tiny", "", "tiny"},
    {"", "8.", "a100-80gb"},
    {"", "", "h100-80gb"},
};

const Json* find(const Facts& facts, const char* key) {
  const auto found = facts.value.find(key);
  return found != facts.value.end() ? &found->second : nullptr;
}

std::string base_of(const std::string& name, const std::string& capability) {
  for (const Base& base : kBases) {
    if (name.find(base.part_of_name) != name.npos && capability.rfind(base.generation, 0) == 0) {
      return base.profile;
    }
  }
  return "h100-80gb";
}

// False when the fact cannot be.
bool vary(const Varied& row, const Json& value, ReportedProfile* profile, std::string* error) {
  std::string text = value.plain();
  if (row.as == As::text) {
    const bool plain = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789.") == text.npos;
    if (value.kind != Json::Kind::text || text.empty() || !plain) {
      *error = std::string(row.fact) + " is '" + text + "', which cannot be";
      return false;
    }
  } else {
    if (value.kind != Json::Kind::number || value.number < row.least || value.number > row.most) {
      *error = std::string(row.fact) + " is " + text + ", which cannot be: accepted are " +
               hardware::written(row.least) + " to " + hardware::written(row.most);
      return false;
    }
    const double number = row.as == As::mib            ? std::ceil(value.number / kMiB)
                          : row.as == As::milliseconds ? std::round(value.number)
                                                       : value.number;
    text = hardware::written(number);
  }
  if (row.by[0] == '-') {
    profile->create.insert(profile->create.end(), {row.by, text});
  } else {
    profile->variables.emplace_back(row.by, text);
  }
  return true;
}

bool take_facts(const Facts& facts, ReportedProfile* profile, std::string* error) {
  const auto vary_all = [&](const auto& rows) {
    for (const Varied& row : rows) {
      const Json* value = find(facts, row.fact);
      if (value != nullptr && !vary(row, *value, profile, error)) return false;
    }
    return true;
  };
  const Json* name = find(facts, "gpu.name");
  if (name != nullptr) {
    const Json* capability = find(facts, "gpu.compute_capability");
    const std::string base =
        base_of(name->plain(), capability != nullptr ? capability->plain() : "");
    profile->create = {"--profile", base};
    profile->differing.push_back("the GPU's name and identity: those of profile " + base);
    if (!vary_all(kNvidia)) return false;
    if (find(facts, "amd.vram_bytes") != nullptr) {
      profile->differing.push_back("the AMD device beside it is left out");
    }
    return true;
  }
  if (find(facts, "amd.vram_bytes") == nullptr) {
    *error = "it tells of no GPU";
    return false;
  }
  profile->create = {"--profile", "mi210"};
  profile->differing.push_back("the GPU's name and identity: those of profile mi210");
  return vary_all(kAmd);
}

}  // namespace

bool profile_from(const std::string& report, ReportedProfile* profile, std::string* error) {
  std::ifstream file(report);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) {
    *error = "cannot read " + report;
    return false;
  }
  Facts facts;
  std::string why;
  if (!hardware::read_report(text.str(), &facts, &why) || !take_facts(facts, profile, &why)) {
    *error = report + " is refused: " + why;
    return false;
  }
  for (const Fixed& row : kFixed) {
    const Json* value = find(facts, row.fact);
    if (value == nullptr || value->plain() == row.value) continue;
    profile->differing.push_back(std::string(row.fact) + ": " + value->plain() +
                                 " there, and always " + row.value + " on a simulated node");
  }
  profile->differing.push_back("times: the simulated driver answers at once");
  return true;
}

}  // namespace sim
