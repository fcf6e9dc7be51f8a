// Notices at once when another program changes or deletes this node's ResourceSlices.
#pragma once

#include <functional>
#include <string>

#include "tools/dra/api_client.h"

namespace fracgpu::tools::dra {

// The URL for listing and watching the slices of this driver and node.
std::string slices_query(const std::string& node);

// Calls `ring` whenever the slices may have changed since the last call, also after a gap in the
// watch. If a server refuses or ends the watch, it is retried at growing intervals, with a line in
// the log, and `ring` is called with each retry. Needs its own thread.
[[noreturn]] void watch_slices(const ApiClient& api, const std::string& node,
                               const std::function<void()>& ring);

}  // namespace fracgpu::tools::dra
