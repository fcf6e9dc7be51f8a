// See slice_watch.h.
#include "tools/dra/slice_watch.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

#include "tools/dra/device.h"
#include "tools/dra/log.h"

namespace fracgpu::tools::dra {
namespace {

constexpr std::chrono::seconds kFirstPause(1);
constexpr std::chrono::seconds kLongestPause(30);

}  // namespace

std::string slices_query(const std::string& node) {
  return fmt::format(
      "/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.driver%3D{}%2Cspec.nodeName%3D{}",
      kDriver, node);
}

void watch_slices(const ApiClient& api, const std::string& node,
                  const std::function<void()>& ring) {
  for (auto pause = kFirstPause;;) {
    try {
      // The watch names no version to start from, so no version is too old. It begins with the
      // existing slices, and its start itself is a reason to check them.
      api.watch(slices_query(node), ring, [&](const Json& event) {
        const std::string type = event.value("type", "");
        if (type == "ERROR") {
          throw ApiError(event["object"].value("code", 0L),
                         "the API server ends the watch of slices: " +
                             event["object"].value("message", "it gives no reason"));
        }
        if (type != "BOOKMARK") ring();
      });
      std::this_thread::sleep_for(pause = kFirstPause);
    } catch (const std::exception& error) {
      log("warning", error.what());
      ring();
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, kLongestPause);
    }
  }
}

}  // namespace fracgpu::tools::dra
