// The Kubernetes API server, by libcurl.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

#include "tools/cli/json.h"
#include "tools/dra/credentials.h"

namespace fracgpu::tools::dra {

// What the server says, or that it does not answer.
struct ApiError : std::runtime_error {
  ApiError(long status, const std::string& line) : std::runtime_error(line), status(status) {}
  long status;  // of HTTP; 0: there was no answer
  // May be different if the same is asked again: no answer, too many requests, or the server's own
  // trouble.
  bool is_passing() const { return status == 0 || status == 429 || status >= 500; }
};

// Any thread: each request is a connection of its own, and takes at most 10 s, but for a watch.
class ApiClient {
 public:
  explicit ApiClient(Credentials credentials);

  // What is at "/api/v1/…"; an object of the server's. All throw ApiError with one line.
  Json get(const std::string& path) const;
  // The same up to three times where that may help.
  Json get_again(const std::string& path) const;
  Json create(const std::string& path, const Json& object) const;
  // Of the version that `object` names; else the status is 409.
  Json replace(const std::string& path, const Json& object) const;
  void remove(const std::string& path) const;
  // The events of a watch of what is listed at `path`, one by one; `started` when it stands.
  // Returns when the server ends it, which is after some minutes. What `each` throws, this throws.
  void watch(const std::string& path, const std::function<void()>& started,
             const std::function<void(const Json&)>& each) const;
  // Makes the fields that `object` has what they are there (server-side apply).
  Json apply(const std::string& path, const Json& object) const;

 private:
  class Exchange;
  Json send(const char* method, const std::string& path, const Json* object,
            const char* type = "application/json") const;

  Credentials credentials_;
};

}  // namespace fracgpu::tools::dra
