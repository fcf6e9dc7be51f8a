// A small HTTP server for a few pages: enough for Prometheus and for health probes. Everything that
// clients can make it do is bounded.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "tools/cli/descriptor.h"

namespace fracgpu::tools {

class HttpServer {
 public:
  // Listens on "127.0.0.1:9400", "[::1]:9400" or "0.0.0.0:9400"; port 0 means any free port. Throws
  // std::runtime_error with one line if the address is invalid or cannot be had. A client must send
  // a whole request and take its answer within `deadline_ms` after its connection was accepted;
  // otherwise it is cut off, however often a byte of it comes. The time that a page takes does not
  // count.
  static constexpr uint64_t kDeadline_ms = 10'000;
  explicit HttpServer(const std::string& address, uint64_t deadline_ms = kDeadline_ms);

  // "http://127.0.0.1:9400"
  const std::string& url() const { return url_; }

  // The function that makes each page, by the page's path. If a function throws, the answer is
  // status 500 and the reason.
  using Pages = std::map<std::string, std::function<std::string()>>;

  // Answers GET and HEAD for these pages until the process ends. Clients that ask while a page is
  // made share the next one. If there are more than 256 connections, the oldest are closed.
  [[noreturn]] void serve(const Pages& pages);

 private:
  const uint64_t deadline_ms_;
  Descriptor listener_;
  std::string url_;
};

}  // namespace fracgpu::tools
