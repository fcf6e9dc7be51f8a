// See claim_status.h.
#include "tools/dra/claim_status.h"

#include <fmt/core.h>
#include <time.h>

#include "shim/base/fnv.h"
#include "shim/ledger/ledger_path.h"
#include "tools/dra/device.h"

namespace fracgpu::tools::dra {
namespace {

std::string now() {
  const time_t seconds = time(nullptr);
  tm parts;
  gmtime_r(&seconds, &parts);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

bool is_of(const Json& status, const Json& result) {
  for (const char* const key : {"driver", "pool", "device", "shareID"}) {
    if (status.value(key, "") != result.value(key, "")) return false;
  }
  return true;
}

bool says(const Json& devices, const Json& result, const Json& condition) {
  for (const Json& status : devices.items()) {
    if (!is_of(status, result)) continue;
    for (const Json& there : status["conditions"].items()) {
      if (there.value("status", "") == condition.value("status", "") &&
          there.value("message", "") == condition.value("message", "")) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

std::optional<Json> status_of(const Json& object, const std::string& fault) {
  const Json& metadata = object["metadata"];
  const std::string tenant = std::string(kClaimTenant) + metadata.value("uid", "");
  const Json& there = object["status"]["devices"];
  Json devices = Json::array();
  bool new_to_it = false;
  for (const Json& result : object["status"]["allocation"]["devices"]["results"].items()) {
    if (result.value("driver", "") != kDriver) continue;
    const std::string memory = result["consumedCapacity"].value("memory", "");
    const Json condition = {
        {"type", "Ready"},
        {"status", fault.empty() ? "True" : "False"},
        {"reason", fault.empty() ? "Capped" : "Refused"},
        {"message", fault.empty()
                        ? fmt::format("capped at {} of memory, as tenant {}", memory, tenant)
                        : fault},
        {"lastTransitionTime", now()}};
    Json status = Json::object();
    for (const char* const key : {"driver", "pool", "device", "shareID"}) {
      if (result.contains(key)) status[key] = result[key];
    }
    status["conditions"] = Json::array({condition});
    if (fault.empty()) status["data"] = {{"memory", memory}, {"tenant", tenant}};
    new_to_it = new_to_it || !says(there, result, condition);
    devices.push_back(status);
  }
  if (!new_to_it) return std::nullopt;
  return Json{{"apiVersion", "resource.k8s.io/v1"},
              {"kind", "ResourceClaim"},
              {"metadata",
               {{"name", metadata.value("name", "")},
                {"namespace", metadata.value("namespace", "")},
                {"uid", metadata.value("uid", "")}}},
              {"status", {{"devices", devices}}}};
}

Json event_of(const Json& object, const Json& status, const std::string& node) {
  const Json& metadata = object["metadata"];
  const std::string space = metadata.value("namespace", ""), name = metadata.value("name", "");
  std::string told;
  bool is_ready = true;
  for (const Json& device : status["status"]["devices"].items()) {
    const Json& condition = device["conditions"].items().at(0);
    is_ready = is_ready && condition.value("status", "") == "True";
    const std::string message = condition.value("message", "");
    if (!is_ready) {
      told = message;  // the same message for all devices
    } else {
      if (!told.empty()) told += "; ";
      told += device.value("device", "") + ": " + message;
    }
  }
  // A name has 253 characters at most.
  constexpr size_t kMostOfName = 236;
  const std::string uid = metadata.value("uid", ""), moment = now();
  Fnv1a hash;
  hash.mix(uid).mix(node).mix(told);
  return {{"apiVersion", "v1"},
          {"kind", "Event"},
          {"metadata",
           {{"name", fmt::format("{}.{:016x}", name.substr(0, kMostOfName), hash.value())},
            {"namespace", space}}},
          {"involvedObject",
           {{"apiVersion", "resource.k8s.io/v1"},
            {"kind", "ResourceClaim"},
            {"name", name},
            {"namespace", space},
            {"uid", uid}}},
          {"type", is_ready ? "Normal" : "Warning"},
          {"reason", is_ready ? "Capped" : "Refused"},
          {"message", told},
          {"source", {{"component", kDriver}, {"host", node}}},
          {"firstTimestamp", moment},
          {"lastTimestamp", moment},
          {"count", 1}};
}

}  // namespace fracgpu::tools::dra
