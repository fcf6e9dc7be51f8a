// The command that makes, shows and removes a simulated node: simnode create|show|remove PATH, and
// makes one like real hardware that was measured: simnode profile-from REPORT [PATH].
// "show" gives devices, tenants and processes as text or JSON. It reaps first, as every reader
// does.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "sim/node/amd_partitions.h"
#include "sim/node/capabilities.h"
#include "sim/node/node.h"
#include "sim/node/profile_from.h"

namespace {

int usage(FILE* to = stderr) {
  std::fputs(
      "usage: simnode create PATH [--profile P] [--context-mib N] [--total-mib N] [--linger-ms N]\n"
      "                           [--driver 580.65.06] [--modules open|closed]\n"
      "       simnode show PATH [--json]\n"
      "       simnode reset PATH      start the high-water marks again\n"
      "       simnode reload PATH     as modprobe -r amdgpu && modprobe amdgpu\n"
      "       simnode remove PATH\n"
      "       simnode profile-from REPORT [PATH]   a node like the hardware of a report of\n"
      "                                            tests/hardware.sh; without PATH, says how\n",
      to);
  return to == stderr ? 2 : 0;
}

// An option that is none of ours, where a path belongs. A file of that name is nobody's wish.
int refuse_path(const char* path) {
  std::fprintf(stderr, "simnode: '%s' begins with '-'; for a file of that name write ./%s\n", path,
               path);
  return 2;
}

const char* vendor_of(const sim::DeviceRow& device) {
  return device.vendor == sim::Vendor::kAmd ? "amd" : "nvidia";
}

void show_text(sim::Node& node) {
  for (int dev = 0; dev < node.device_count(); ++dev) {
    if (!node.is_there(dev)) continue;
    const sim::DeviceRow& device = node.device(dev);
    if (device.absent != 0) continue;
    std::printf("device %d %s %s %s total=%llu used=%llu", dev, node.uuid(dev).c_str(),
                node.bus_id(dev).c_str(), device.name,
                static_cast<unsigned long long>(node.total(dev)),
                static_cast<unsigned long long>(node.used(dev)));
    if (device.vendor == sim::Vendor::kAmd) {
      std::printf(" vendor=amd gpu_id=%u node=%u location=0x%x partition=%u/%u", device.kfd_gpu_id,
                  device.kfd_node, device.location_id, device.partition, device.partitions);
    }
    std::puts("");
    for (const std::string& tag : node.tenants()) {
      std::printf("  tenant %s used=%llu high=%llu\n", tag.c_str(),
                  static_cast<unsigned long long>(node.tenant_used(dev, tag)),
                  static_cast<unsigned long long>(node.tenant_high_water(dev, tag)));
    }
  }
  for (const sim::ProcessInfo& process : node.processes()) {
    std::printf("process %d %s tenant=%s%s\n", process.pid, process.command.c_str(),
                process.tenant.c_str(), process.lingering ? " lingering" : "");
    for (size_t dev = 0; dev < process.device.size(); ++dev) {
      const auto& use = process.device[dev];
      std::printf("  device %zu contexts=%llu context_bytes=%llu allocation_bytes=%llu\n", dev,
                  static_cast<unsigned long long>(use.contexts),
                  static_cast<unsigned long long>(use.context_bytes),
                  static_cast<unsigned long long>(use.allocation_bytes));
    }
  }
}

// Tags and command names come from the environment: quote what JSON cannot hold.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out + "\"";
}

std::string amd_json(const sim::DeviceRow& device) {
  if (device.vendor != sim::Vendor::kAmd) return "";
  return ",\"gpu_id\":" + std::to_string(device.kfd_gpu_id) +
         ",\"node\":" + std::to_string(device.kfd_node) +
         ",\"location_id\":" + std::to_string(device.location_id) +
         ",\"gfx_target_version\":" + std::to_string(device.gfx_target_version) +
         ",\"unique_id\":" + std::to_string(device.unique_id) +
         ",\"partition\":" + std::to_string(device.partition) +
         ",\"partitions\":" + std::to_string(device.partitions);
}

void show_json(sim::Node& node) {
  std::string out = "{\"profile\":" + quoted(node.profile()) + ",\"devices\":[";
  for (int dev = 0; dev < node.device_count(); ++dev) {
    if (!node.is_there(dev) || node.device(dev).absent != 0) continue;
    if (dev != 0) out += ",";
    out += "{\"index\":" + std::to_string(dev) + ",\"uuid\":" + quoted(node.uuid(dev)) +
           ",\"bus_id\":" + quoted(node.bus_id(dev)) +
           ",\"name\":" + quoted(node.device(dev).name) +
           ",\"vendor\":" + quoted(vendor_of(node.device(dev))) + amd_json(node.device(dev)) +
           ",\"total\":" + std::to_string(node.total(dev)) +
           ",\"used\":" + std::to_string(node.used(dev)) + ",\"tenants\":{";
    bool first = true;
    for (const std::string& tag : node.tenants()) {
      if (!first) out += ",";
      first = false;
      out += quoted(tag) + ":{\"used\":" + std::to_string(node.tenant_used(dev, tag)) +
             ",\"high_water\":" + std::to_string(node.tenant_high_water(dev, tag)) + "}";
    }
    out += "}}";
  }
  out += "],\"processes\":[";
  bool first = true;
  for (const sim::ProcessInfo& process : node.processes()) {
    if (!first) out += ",";
    first = false;
    out += "{\"pid\":" + std::to_string(process.pid) + ",\"command\":" + quoted(process.command) +
           ",\"tenant\":" + quoted(process.tenant) +
           ",\"lingering\":" + (process.lingering ? "true" : "false") + ",\"devices\":[";
    for (size_t dev = 0; dev < process.device.size(); ++dev) {
      if (dev != 0) out += ",";
      out += "{\"contexts\":" + std::to_string(process.device[dev].contexts) +
             ",\"context_bytes\":" + std::to_string(process.device[dev].context_bytes) +
             ",\"allocation_bytes\":" + std::to_string(process.device[dev].allocation_bytes) + "}";
    }
    out += "]}";
  }
  std::puts((out + "]}").c_str());
}

struct Created {
  std::string profile = "h100-80gb";
  sim::NodeOptions options;
};

// An option of `create`; false if it is none.
bool take_option(const std::string& name, const std::string& value, Created* node) {
  if (name == "--profile") {
    node->profile = value;
  } else if (name == "--context-mib") {
    node->options.context_mib = std::atoll(value.c_str());
  } else if (name == "--total-mib") {
    node->options.total_mib = std::atoll(value.c_str());
  } else if (name == "--linger-ms") {
    node->options.linger_ms = std::strtoull(value.c_str(), nullptr, 10);
  } else if (name == "--driver") {
    node->options.driver = value;
  } else if (name == "--modules" && (value == "open" || value == "closed")) {
    node->options.open_modules = value == "open";
  } else {
    return false;
  }
  return true;
}

int create(const std::string& path, const Created& node) {
  std::string error;
  if (sim::Node::create(path, node.profile, node.options, &error)) {
    if (const auto made = sim::Node::open(path, &error)) {
      for (int dev = 0; dev < made->device_count(); ++dev) {
        if (made->device(dev).mig_card != 0) sim::show_capabilities(*made, dev);
      }
      return 0;
    }
  }
  std::fprintf(stderr, "simnode: %s\n", error.c_str());
  return 1;
}

// On stdout, for `eval`: the variables of programs on the node. On stderr: what it does otherwise.
int profile_from(const std::string& report, const char* path) {
  sim::ReportedProfile profile;
  std::string error;
  if (!sim::profile_from(report, &profile, &error)) {
    std::fprintf(stderr, "simnode: %s\n", error.c_str());
    return 1;
  }
  std::string command = "simnode create PATH";
  Created node;
  for (size_t i = 0; i + 1 < profile.create.size(); i += 2) {
    command += " " + profile.create[i] + " " + profile.create[i + 1];
    if (!take_option(profile.create[i], profile.create[i + 1], &node)) return usage();
  }
  if (path != nullptr && create(path, node) != 0) return 1;
  if (path == nullptr) std::printf("# %s\n", command.c_str());
  if (path != nullptr) std::printf("export %s='%s'\n", sim::kNodeVariable, path);
  for (const auto& [name, value] : profile.variables) {
    std::printf("export %s='%s'\n", name.c_str(), value.c_str());
  }
  for (const std::string& line : profile.differing) {
    std::fprintf(stderr, "not as in the report: %s\n", line.c_str());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--help") == 0) return usage(stdout);
  }
  if (argc < 3) return usage();
  const std::string command = argv[1];
  if (argv[2][0] == '-') return refuse_path(argv[2]);
  if (command == "profile-from" && argc == 4 && argv[3][0] == '-') return refuse_path(argv[3]);
  const std::string path = argv[2];
  if (command == "profile-from" && argc <= 4) return profile_from(path, argv[3]);
  Created node;
  bool json = false;
  for (int i = 3; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) {
      json = true;
    } else if (i + 1 < argc && take_option(argv[i], argv[i + 1], &node)) {
      ++i;
    } else {
      return usage();
    }
  }
  if (command == "create") return create(path, node);
  std::string error;
  if (command == "remove") {
    if (sim::Node::remove(path)) return 0;
    error = "cannot remove " + path;
  } else if (command == "reload") {
    const auto opened = sim::Node::open(path, &error);
    if (opened != nullptr && sim::reload_driver(*opened) == sim::ModeChange::kDone) return 0;
    if (opened != nullptr) error = "Module amdgpu is in use";
  } else if (command == "show" || command == "reset") {
    if (const auto opened = sim::Node::open(path, &error)) {
      if (command == "reset") {
        opened->reset_high_water();
      } else {
        json ? show_json(*opened) : show_text(*opened);
      }
      return 0;
    }
  } else {
    return usage();
  }
  std::fprintf(stderr, "simnode: %s\n", error.c_str());
  return 1;
}
