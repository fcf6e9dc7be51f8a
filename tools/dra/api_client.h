// The Kubernetes API server, by libcurl.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

#include "tools/cli/json.h"
#include "tools/dra/credentials.h"

namespace fracgpu::tools::dra {

// The server's error, or the fact that it does not answer.
struct ApiError : std::runtime_error {
  ApiError(long status, const std::string& line) : std::runtime_error(line), status(status) {}
  long status;  // of HTTP; 0: no answer
  // Whether a repeated request may succeed: no answer, too many requests, or an internal error of
  // the server.
  bool is_passing() const { return status == 0 || status == 429 || status >= 500; }
};

// Any thread may use it. Each request is a separate connection and takes at most 10 s, except a
// watch.
class ApiClient {
 public:
  explicit ApiClient(Credentials credentials);

  // The object at "/api/v1/…". All functions throw ApiError with one line.
  Json get(const std::string& path) const;
  // The same with up to three attempts, if a repetition may help.
  Json get_again(const std::string& path) const;
  Json create(const std::string& path, const Json& object) const;
  // Replaces the version that `object` names. For another version, the status is 409.
  Json replace(const std::string& path, const Json& object) const;
  void remove(const std::string& path) const;
  // Calls `each` for every event of a watch of the list at `path`. Calls `started` once the watch
  // is established. Returns when the server ends it, after some minutes. Passes on exceptions of
  // `each`.
  void watch(const std::string& path, const std::function<void()>& started,
             const std::function<void(const Json&)>& each) const;
  // Sets the fields that `object` has to its values (server-side apply).
  Json apply(const std::string& path, const Json& object) const;

 private:
  class Exchange;
  Json send(const char* method, const std::string& path, const Json* object,
            const char* type = "application/json") const;

  Credentials credentials_;
};

}  // namespace fracgpu::tools::dra
