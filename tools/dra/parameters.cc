// See parameters.h.
#include "tools/dra/parameters.h"

#include <fmt/core.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>

#include "shim/base/text.h"
#include "tools/dra/device.h"

namespace fracgpu::tools::dra {
namespace {

using Environment = std::map<std::string, std::string>;

constexpr char kVersion[] = "fracgpu.dev/v1";
constexpr char kKind[] = "ClaimParameters";
constexpr const char* kLevels[] = {"off", "error", "warn", "info", "debug"};

[[noreturn]] void refuse(const std::string& what) {
  throw std::runtime_error(
      fmt::format("the opaque configuration for {} {}; accepted: apiVersion: {}, kind: {}, log: "
                  "\"off\", error, "
                  "warn, info or debug, nvml: true or false",
                  kDriver, what, kVersion, kKind));
}

std::string shown(const std::string& text) {
  return std::string(fracgpu::quoted(text).view());
}
std::string shown(const Json& value) {
  return shown(value.is_string() ? value.text() : value.dump_ascii(-1));
}

std::string level_in(const Json& value) {
  const bool known =
      value.is_string() && std::any_of(std::begin(kLevels), std::end(kLevels),
                                       [&](const char* level) { return value.text() == level; });
  // In YAML, a bare off means false.
  if (!known) refuse(fmt::format("has log: {}, which is not a level", shown(value)));
  return value.text();
}

std::string switch_in(const Json& object, const char* key) {
  const bool on = object.value(key, true);
  if (on != object.value(key, false)) {
    refuse(fmt::format("has {}: {}, which is neither true nor false", key, shown(object[key])));
  }
  return on ? "on" : "off";
}

Environment read(const Json& parameters) {
  if (!parameters.is_object()) refuse("is not an object");
  const std::pair<const char*, const char*> head[] = {{"apiVersion", kVersion}, {"kind", kKind}};
  for (const auto& [key, wanted] : head) {
    if (parameters.value(key, "") != wanted) {
      refuse(fmt::format("has {}: {}", key, shown(parameters[key])));
    }
  }
  Environment said;
  for (const std::string& key : parameters.keys()) {
    if (key == "log") {
      said["FRACGPU_LOG"] = level_in(parameters[key]);
    } else if (key == "nvml") {
      said["FRACGPU_NVML"] = switch_in(parameters, "nvml");
    } else if (key != "apiVersion" && key != "kind") {
      refuse(fmt::format("has {}, which is not understood", shown(key)));
    }
  }
  return said;
}

std::string without_subrequest(const std::string& request) {
  return request.substr(0, request.find('/'));
}

// A claim's containers have one environment, so a part of its devices cannot have a different one.
void check_is_for_all(const Json& config, const Json& results) {
  const auto& requests = config["requests"].items();
  if (requests.empty()) return;
  for (const Json& result : results.items()) {
    if (result.value("driver", "") != kDriver) continue;
    const std::string request = result.value("request", "");
    if (std::none_of(requests.begin(), requests.end(), [&](const Json& named) {
          return named.is_string() &&
                 (named.text() == request || named.text() == without_subrequest(request));
        })) {
      refuse(
          fmt::format("is not for request {}: it holds for a whole claim, so name all requests "
                      "or none",
                      shown(request)));
    }
  }
}

}  // namespace

Environment environment_of(const Json& allocation) {
  const Json& devices = allocation["devices"];
  Environment of_class, of_claim;
  for (const Json& config : devices["config"].items()) {
    if (config["opaque"].value("driver", "") != kDriver) continue;
    const bool is_class = config.value("source", "") == "FromClass";
    if (!is_class) check_is_for_all(config, devices["results"]);
    Environment& all = is_class ? of_class : of_claim;
    for (const auto& [name, value] : read(config["opaque"]["parameters"])) {
      const auto [there, fresh] = all.emplace(name, value);
      if (!fresh && there->second != value) {
        refuse(fmt::format("gives {} two values, {} and {}", name, there->second, value));
      }
    }
  }
  of_claim.merge(of_class);  // keeps existing values
  return of_claim;
}

}  // namespace fracgpu::tools::dra
