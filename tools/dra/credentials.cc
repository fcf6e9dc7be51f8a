// See credentials.h.
#include "tools/dra/credentials.h"

#include <fmt/core.h>
#include <stdlib.h>

#include <filesystem>
#include <stdexcept>
#include <string_view>

#include "tools/cli/json.h"
#include "tools/cli/judged_file.h"

namespace fracgpu::tools::dra {
namespace {

constexpr char kAccount[] = "/var/run/secrets/kubernetes.io/serviceaccount";
constexpr size_t kLargest = 1 << 20;

[[noreturn]] void refuse(const std::string& line) {
  throw std::runtime_error(line);
}

std::string whole(const std::string& path) {
  std::string text = read_judged(path, kLargest, Links::followed);
  if (text.empty()) refuse(fmt::format("{} is not there, or cannot be read", path));
  return text;
}

std::string decoded(const std::string& text, const std::string& field) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=' || c == '\n') continue;
    const size_t digit = kDigits.find(c);
    if (digit == kDigits.npos) refuse(fmt::format("{} in the kubeconfig is no base64", field));
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xff);
  }
  return bytes;
}

// The data in the kubeconfig itself, or in the file that it names.
std::string data_of(const Json& from, const std::string& field, const std::string& folder) {
  if (const std::string data = from.value(field + "-data", ""); !data.empty()) {
    return decoded(data, field + "-data");
  }
  const std::string path = from.value(field, "");
  if (path.empty()) return "";
  return whole(path.front() == '/' ? path : folder + "/" + path);
}

const Json& named(const Json& list, std::string_view name, const char* kind) {
  for (const Json& each : list.items()) {
    if (each.value("name", "") == name) return each[kind];
  }
  refuse(fmt::format("the kubeconfig has no {} '{}'", kind, name));
}

Credentials of_pod() {
  const char* const host = getenv("KUBERNETES_SERVICE_HOST");
  const char* const port = getenv("KUBERNETES_SERVICE_PORT");
  if (host == nullptr || port == nullptr) {
    refuse(
        "this runs in no pod (KUBERNETES_SERVICE_HOST is not set); name the API server by "
        "--kubeconfig");
  }
  const bool is_v6 = std::string_view(host).find(':') != std::string_view::npos;
  return {
      .server = fmt::format("https://{}{}{}:{}", is_v6 ? "[" : "", host, is_v6 ? "]" : "", port),
      .authority = whole(std::string(kAccount) + "/ca.crt"),
      .token_file = std::string(kAccount) + "/token"};
}

}  // namespace

Credentials find_credentials(const std::string& kubeconfig) {
  if (kubeconfig.empty()) return of_pod();
  const std::string text = whole(kubeconfig);
  Json config;
  try {
    config = Json::parse(text);
  } catch (const std::runtime_error&) {
    refuse(
        fmt::format("{} is no JSON; kubectl config view --raw --flatten --minify -o json writes "
                    "such a file",
                    kubeconfig));
  }
  const std::string folder = std::filesystem::path(kubeconfig).parent_path().string();
  const Json& context = named(config["contexts"], config.value("current-context", ""), "context");
  const Json& cluster = named(config["clusters"], context.value("cluster", ""), "cluster");
  const Json& user = named(config["users"], context.value("user", ""), "user");
  return {.server = cluster.at("server").text(),
          .authority = data_of(cluster, "certificate-authority", folder),
          .certificate = data_of(user, "client-certificate", folder),
          .key = data_of(user, "client-key", folder),
          .token = user.value("token", ""),
          .token_file = user.value("tokenFile", "")};
}

}  // namespace fracgpu::tools::dra
