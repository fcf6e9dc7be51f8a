// See api_client.h.
#include "tools/dra/api_client.h"

#include <curl/curl.h>
#include <fmt/core.h>

#include <memory>
#include <new>
#include <utility>

#include "shim/base/clock.h"
#include "tools/cli/judged_file.h"
#include "tools/cli/plain_text.h"

namespace fracgpu::tools::dra {
namespace {

constexpr long kDeadline_s = 10;
constexpr size_t kLargest = 64 << 20;  // a node's slices are some 100 KiB
constexpr int kAttempts = 3;
constexpr uint64_t kFirstPause_ms = 200;

using Handle = std::unique_ptr<CURL, decltype(&curl_easy_cleanup)>;

class Headers {
 public:
  void add(const std::string& line) {
    curl_slist* const longer = curl_slist_append(list_.get(), line.c_str());
    if (longer == nullptr) throw std::bad_alloc();
    [[maybe_unused]] auto* const same = list_.release();
    list_.reset(longer);
  }
  curl_slist* get() const { return list_.get(); }

 private:
  std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> list_{nullptr, curl_slist_free_all};
};

size_t take(char* bytes, size_t, size_t size, void* body) noexcept {
  auto& text = *static_cast<std::string*>(body);
  if (text.size() + size > kLargest) return 0;
  try {
    text.append(bytes, size);
  } catch (const std::bad_alloc&) {
    return 0;
  }
  return size;
}

void set_pem(CURL* handle, CURLoption option, const std::string& pem) {
  if (pem.empty()) return;
  curl_blob blob = {const_cast<char*>(pem.data()), pem.size(), CURL_BLOB_NOCOPY};
  curl_easy_setopt(handle, option, &blob);
}

// The server says it as an object of the kind Status.
std::string reason_in(const std::string& body) {
  try {
    if (const std::string said = Json::parse(body).value("message", ""); !said.empty()) {
      return clean(said.c_str(), said.size());
    }
  } catch (const std::runtime_error&) {
  }
  return clean(body.c_str(), std::min<size_t>(body.size(), 200));
}

}  // namespace

ApiClient::ApiClient(Credentials credentials) : credentials_(std::move(credentials)) {
  curl_global_init(CURL_GLOBAL_DEFAULT);
}

Json ApiClient::send(const char* method, const std::string& path, const Json* object) const {
  const Handle handle(curl_easy_init(), curl_easy_cleanup);
  if (handle == nullptr) throw std::bad_alloc();
  CURL* const curl = handle.get();
  const std::string url = credentials_.server + path;
  const std::string content = object == nullptr ? "" : object->dump_ascii(-1);
  std::string body;
  char why[CURL_ERROR_SIZE] = "";
  Headers headers;
  headers.add("Accept: application/json");
  if (object != nullptr) headers.add("Content-Type: application/json");
  std::string token = credentials_.token;
  if (!credentials_.token_file.empty()) {
    token = read_judged(credentials_.token_file, kLargest, Links::followed);
    token = token.substr(0, token.find_first_of("\r\n"));
  }
  if (!token.empty()) headers.add("Authorization: Bearer " + token);
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "https,http");
  curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);  // there are threads
  curl_easy_setopt(curl, CURLOPT_TIMEOUT, kDeadline_s);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &body);
  set_pem(curl, CURLOPT_CAINFO_BLOB, credentials_.authority);
  set_pem(curl, CURLOPT_SSLCERT_BLOB, credentials_.certificate);
  set_pem(curl, CURLOPT_SSLKEY_BLOB, credentials_.key);
  if (object != nullptr) {
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, content.c_str());
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(content.size()));
  }
  if (const CURLcode code = curl_easy_perform(curl); code != CURLE_OK) {
    throw ApiError(0, fmt::format("the API server {} does not answer: {}", credentials_.server,
                                  *why != '\0' ? why : curl_easy_strerror(code)));
  }
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  if (status / 100 != 2) {
    throw ApiError(status, fmt::format("the API server refuses {} {}: {} {}", method, path, status,
                                       reason_in(body)));
  }
  try {
    return Json::parse(body);
  } catch (const std::runtime_error& error) {
    throw ApiError(0, fmt::format("the API server's answer to {} {} is no JSON: {}", method, path,
                                  error.what()));
  }
}

Json ApiClient::get(const std::string& path) const {
  return send("GET", path, nullptr);
}

Json ApiClient::get_again(const std::string& path) const {
  uint64_t pause_ms = kFirstPause_ms;
  for (int attempt = 1;; ++attempt, pause_ms *= 2) {
    try {
      return get(path);
    } catch (const ApiError& error) {
      if (attempt == kAttempts || !error.is_passing()) throw;
    }
    sleep_ms(pause_ms);
  }
}

Json ApiClient::create(const std::string& path, const Json& object) const {
  return send("POST", path, &object);
}

Json ApiClient::replace(const std::string& path, const Json& object) const {
  return send("PUT", path, &object);
}

void ApiClient::remove(const std::string& path) const {
  send("DELETE", path, nullptr);
}

}  // namespace fracgpu::tools::dra
