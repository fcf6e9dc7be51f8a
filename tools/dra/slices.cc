// See slices.h. The fields: https://kubernetes.io/docs/reference/kubernetes-api
// (resource.k8s.io/v1).
#include "tools/dra/slices.h"

#include <algorithm>

#include "tools/dra/quantity.h"

namespace fracgpu::tools::dra {
namespace {

// Kubernetes allows 128 devices in a slice, and fewer if they use newer features.
constexpr size_t kMostDevices = 64;
constexpr size_t kLongestText = 64;  // of an attribute

// A context hardly fits below this. The scheduler rounds amounts up to whole MiB.
constexpr uint64_t kStep = uint64_t{1} << 20;
constexpr uint64_t kLeast = 256 * kStep;

Json attributes_of(const Device& device) {
  Json all = Json::object();
  const auto add = [&](const char* name, const std::string& text) {
    if (!text.empty()) all[name] = Json{{"string", text.substr(0, kLongestText)}};
  };
  add("type", device.type);
  add("vendor", device.vendor);
  add("productName", device.product);
  add("uuid", device.uuid);
  add("parentUUID", device.parent);
  add("mode", device.mode);
  add("driverVersion", device.driver_version);
  add("resource.kubernetes.io/pciBusID", device.bus_id);  // Kubernetes' own name, for other drivers
  return all;
}

Json entry_of(const Device& device) {
  const std::string all = quantity_of(device.memory);
  const Json policy = {{"default", all},
                       {"validRange",
                        {{"min", quantity_of(std::min(kLeast, device.memory))},
                         {"max", all},
                         {"step", quantity_of(kStep)}}}};
  return {{"name", device.name},
          {"attributes", attributes_of(device)},
          {"capacity", {{"memory", {{"value", all}, {"requestPolicy", policy}}}}},
          {"allowMultipleAllocations", true}};
}

// Whether everything that is wanted exists. The server may have added more.
bool says(const Json& there, const Json& wanted) {
  if (wanted.is_object()) {
    return there.is_object() &&
           std::all_of(wanted.keys().begin(), wanted.keys().end(), [&](const std::string& key) {
             return there.contains(key) && says(there[key], wanted[key]);
           });
  }
  if (wanted.is_array()) {
    return there.is_array() && there.items().size() == wanted.items().size() &&
           std::equal(there.begin(), there.end(), wanted.begin(), says);
  }
  return there.dump_ascii(-1) == wanted.dump_ascii(-1);
}

std::string first_device(const Json& slice) {
  const Json& devices = slice["spec"]["devices"];
  return devices.empty() ? "" : devices.items().front().value("name", "");
}

}  // namespace

std::vector<Json> slices_of(const std::vector<Device>& devices, const std::string& node,
                            uint64_t generation) {
  const size_t count = (devices.size() + kMostDevices - 1) / kMostDevices;
  std::vector<Json> slices;
  for (size_t i = 0; i < count; ++i) {
    Json entries = Json::array();
    const size_t end = std::min(devices.size(), (i + 1) * kMostDevices);
    for (size_t at = i * kMostDevices; at < end; ++at) entries.push_back(entry_of(devices[at]));
    slices.push_back(
        {{"driver", kDriver},
         {"nodeName", node},
         {"pool", {{"name", node}, {"generation", generation}, {"resourceSliceCount", count}}},
         {"devices", entries}});
  }
  return slices;
}

SliceChanges changes_to(const std::vector<Json>& there, const std::vector<Device>& devices,
                        const std::string& node, const Json& owner) {
  std::vector<Json> old = there;
  std::sort(old.begin(), old.end(),
            [](const Json& a, const Json& b) { return first_device(a) < first_device(b); });
  uint64_t newest = 0;
  for (const Json& slice : old) {
    newest = std::max(newest, slice["spec"]["pool"].value("generation", uint64_t{0}));
  }
  SliceChanges changes;
  std::vector<Json> wanted = slices_of(devices, node, newest);
  const bool same = wanted.size() == old.size() &&
                    std::equal(old.begin(), old.end(), wanted.begin(),
                               [](const Json& a, const Json& b) { return says(a["spec"], b); });
  if (same) return changes;
  wanted = slices_of(devices, node, newest + 1);
  for (size_t i = 0; i < wanted.size(); ++i) {
    Json slice = {{"apiVersion", "resource.k8s.io/v1"}, {"kind", "ResourceSlice"}};
    if (i < old.size()) {
      slice["metadata"] = old[i]["metadata"];
    } else {
      slice["metadata"] = {{"generateName", "fracgpu-"}};
    }
    slice["metadata"]["ownerReferences"] = Json::array({owner});
    slice["spec"] = wanted[i];
    (i < old.size() ? changes.replace : changes.create).push_back(slice);
  }
  for (size_t i = wanted.size(); i < old.size(); ++i) {
    changes.remove.push_back(old[i]["metadata"].value("name", ""));
  }
  return changes;
}

}  // namespace fracgpu::tools::dra
