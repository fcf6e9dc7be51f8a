// See publisher.h.
#include "tools/dra/publisher.h"

#include <fmt/core.h>

#include "tools/dra/slice_watch.h"

namespace fracgpu::tools::dra {
namespace {

constexpr char kSlices[] = "/apis/resource.k8s.io/v1/resourceslices";

}  // namespace

bool Publisher::publish(const std::vector<Device>& devices) const {
  const Json node = api_.get("/api/v1/nodes/" + node_);
  const Json owner = {{"apiVersion", "v1"},
                      {"kind", "Node"},
                      {"name", node_},
                      {"uid", node["metadata"].value("uid", "")},
                      {"controller", true}};
  const Json list = api_.get(slices_query(node_));
  const SliceChanges changes = changes_to(list["items"].items(), devices, node_, owner);
  for (const Json& slice : changes.replace) {
    api_.replace(fmt::format("{}/{}", kSlices, slice["metadata"].value("name", "")), slice);
  }
  for (const Json& slice : changes.create) api_.create(kSlices, slice);
  for (const std::string& name : changes.remove) {
    try {
      api_.remove(fmt::format("{}/{}", kSlices, name));
    } catch (const ApiError& error) {
      if (error.status != 404) throw;
    }
  }
  return !changes.empty();
}

}  // namespace fracgpu::tools::dra
