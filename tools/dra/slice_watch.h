// Learns at once when somebody changes or deletes this node's ResourceSlices.
#pragma once

#include <functional>
#include <string>

#include "tools/dra/api_client.h"

namespace fracgpu::tools::dra {

// Where the slices of this driver and node are listed and watched.
std::string slices_query(const std::string& node);

// Calls `ring` whenever the slices may be others than they were when it was called last, also where
// the watch had a gap. A server that refuses or ends the watch is asked again, ever more rarely,
// with a line in the log; `ring` is called meanwhile as often. For a thread of its own.
[[noreturn]] void watch_slices(const ApiClient& api, const std::string& node,
                               const std::function<void()>& ring);

}  // namespace fracgpu::tools::dra
