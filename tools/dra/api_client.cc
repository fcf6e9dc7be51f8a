// See api_client.h.
#include "tools/dra/api_client.h"

#include <curl/curl.h>
#include <fmt/core.h>

#include <exception>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

#include "shim/base/clock.h"
#include "tools/cli/judged_file.h"
#include "tools/cli/plain_text.h"

namespace fracgpu::tools::dra {
namespace {

constexpr long kDeadline_s = 10;
constexpr long kWatch_s = 240;  // after that the server ends it, so that a dead watch is noticed
constexpr size_t kLargest = 64 << 20;  // a node's slices take some 100 KiB
constexpr size_t kLongestRefusal = 64 << 10;
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

// Consumes an answer's bytes as they arrive. No exception may pass through libcurl, so an exception
// is stored here.
struct Answer {
  std::function<void(std::string_view)> take;
  std::exception_ptr thrown{};
};

size_t take(char* bytes, size_t, size_t size, void* data) noexcept {
  auto& answer = *static_cast<Answer*>(data);
  try {
    answer.take({bytes, size});
    return size;
  } catch (...) {
    answer.thrown = std::current_exception();
    return 0;
  }
}

void set_pem(CURL* handle, CURLoption option, const std::string& pem) {
  if (pem.empty()) return;
  curl_blob blob = {const_cast<char*>(pem.data()), pem.size(), CURL_BLOB_NOCOPY};
  curl_easy_setopt(handle, option, &blob);
}

// The reason in the server's answer, which is an object of the kind Status.
std::string reason_in(const std::string& body) {
  try {
    if (const std::string said = Json::parse(body).value("message", ""); !said.empty()) {
      return clean(said.c_str(), said.size());
    }
  } catch (const std::runtime_error&) {
  }
  return clean(body.c_str(), std::min<size_t>(body.size(), 200));
}

Json parsed(const std::string& text, const char* method, const std::string& path) {
  try {
    return Json::parse(text);
  } catch (const std::runtime_error& error) {
    throw ApiError(0, fmt::format("the API server's answer to {} {} is no JSON: {}", method, path,
                                  error.what()));
  }
}

}  // namespace

ApiClient::ApiClient(Credentials credentials) : credentials_(std::move(credentials)) {
  curl_global_init(CURL_GLOBAL_DEFAULT);
}

// One request and its answer.
class ApiClient::Exchange {
 public:
  Exchange(const Credentials& credentials, const char* method, const std::string& path,
           long deadline_s)
      : credentials_(credentials), what_(fmt::format("{} {}", method, path)) {
    if (handle_ == nullptr) throw std::bad_alloc();
    const std::string url = credentials.server + path;
    set(CURLOPT_URL, url.c_str());
    set(CURLOPT_PROTOCOLS_STR, "https,http");
    set(CURLOPT_CUSTOMREQUEST, method);
    set(CURLOPT_NOSIGNAL, 1L);  // required with threads
    set(CURLOPT_TIMEOUT, deadline_s);
    set(CURLOPT_CONNECTTIMEOUT, kDeadline_s);
    set(CURLOPT_TCP_KEEPALIVE, 1L);
    set(CURLOPT_ERRORBUFFER, why_);
    set_pem(handle_.get(), CURLOPT_CAINFO_BLOB, credentials.authority);
    set_pem(handle_.get(), CURLOPT_SSLCERT_BLOB, credentials.certificate);
    set_pem(handle_.get(), CURLOPT_SSLKEY_BLOB, credentials.key);
    headers_.add("Accept: application/json");
    std::string token = credentials.token;
    if (!credentials.token_file.empty()) {
      token = read_judged(credentials.token_file, kLargest, Links::followed);
      token = token.substr(0, token.find_first_of("\r\n"));
    }
    if (!token.empty()) headers_.add("Authorization: Bearer " + token);
  }

  void give(const Json& object, const char* type) {
    headers_.add(fmt::format("Content-Type: {}", type));
    const std::string content = object.dump_ascii(-1);
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(content.size()));
    set(CURLOPT_COPYPOSTFIELDS, content.c_str());
  }

  // Passes the answer to `each` if the server accepts the request. Otherwise throws the server's
  // reason.
  void perform(const std::function<void(std::string_view)>& each) {
    std::string refusal;
    Answer answer{.take = [&](std::string_view bytes) {
      if (status() / 100 == 2) return each(bytes);
      if (refusal.size() < kLongestRefusal) refusal += bytes;
    }};
    set(CURLOPT_HTTPHEADER, headers_.get());
    set(CURLOPT_WRITEFUNCTION, take);
    set(CURLOPT_WRITEDATA, &answer);
    const CURLcode code = curl_easy_perform(handle_.get());
    if (answer.thrown) std::rethrow_exception(answer.thrown);
    if (code != CURLE_OK) {
      throw ApiError(0, fmt::format("the API server {} does not answer: {}", credentials_.server,
                                    *why_ != '\0' ? why_ : curl_easy_strerror(code)));
    }
    if (status() / 100 == 2) return;
    throw ApiError(status(), fmt::format("the API server refuses {}: {} {}", what_, status(),
                                         reason_in(refusal)));
  }

  // Calls back when the server has accepted the request, before any other data.
  void on_headers(Answer& headers) {
    set(CURLOPT_HEADERFUNCTION, take);
    set(CURLOPT_HEADERDATA, &headers);
  }

  long status() const {
    long number = 0;
    curl_easy_getinfo(handle_.get(), CURLINFO_RESPONSE_CODE, &number);
    return number;
  }

 private:
  template <typename Value>
  void set(CURLoption option, Value value) {
    curl_easy_setopt(handle_.get(), option, value);
  }

  const Credentials& credentials_;
  const std::string what_;
  const Handle handle_{curl_easy_init(), curl_easy_cleanup};
  Headers headers_;
  char why_[CURL_ERROR_SIZE] = "";
};

Json ApiClient::send(const char* method, const std::string& path, const Json* object,
                     const char* type) const {
  Exchange exchange(credentials_, method, path, kDeadline_s);
  if (object != nullptr) exchange.give(*object, type);
  std::string body;
  exchange.perform([&](std::string_view bytes) {
    if (body.size() + bytes.size() > kLargest) throw ApiError(0, "the answer is too long");
    body += bytes;
  });
  return parsed(body, method, path);
}

void ApiClient::watch(const std::string& path, const std::function<void()>& started,
                      const std::function<void(const Json&)>& each) const {
  const std::string query = fmt::format("{}&watch=true&timeoutSeconds={}", path, kWatch_s);
  Exchange exchange(credentials_, "GET", query, kWatch_s + kDeadline_s);
  Answer headers{.take = [&](std::string_view line) {
    if (line == "\r\n" && exchange.status() / 100 == 2) started();
  }};
  exchange.on_headers(headers);
  std::string begun;  // a line whose rest is still to come
  exchange.perform([&](std::string_view bytes) {
    begun += bytes;
    if (begun.size() > kLargest) throw ApiError(0, "an event is too long");
    for (size_t end; (end = begun.find('\n')) != begun.npos; begun.erase(0, end + 1)) {
      each(parsed(begun.substr(0, end), "GET", query));
    }
  });
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

Json ApiClient::apply(const std::string& path, const Json& object) const {
  return send("PATCH", path + "?fieldManager=fracgpu-dra&force=true", &object,
              "application/apply-patch+yaml");  // JSON is a part of YAML
}

void ApiClient::remove(const std::string& path) const {
  send("DELETE", path, nullptr);
}

}  // namespace fracgpu::tools::dra
