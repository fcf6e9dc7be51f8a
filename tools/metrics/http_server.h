// A small HTTP server for one page: enough for Prometheus, and bounded in all that others can make
// it do.
#pragma once

#include <functional>
#include <string>

#include "tools/cli/descriptor.h"

namespace fracgpu::tools {

class HttpServer {
 public:
  // Listens on "127.0.0.1:9400", "[::1]:9400" or "0.0.0.0:9400"; port 0 means any that is free.
  // Throws std::runtime_error with one line for what is no such address, or cannot be had.
  explicit HttpServer(const std::string& address);

  // "http://127.0.0.1:9400"
  const std::string& url() const { return url_; }

  // Answers GET and HEAD of /metrics by what `page` makes, until the process ends.
  [[noreturn]] void serve(const std::function<std::string()>& page);

 private:
  Descriptor listener_;
  std::string url_;
};

}  // namespace fracgpu::tools
