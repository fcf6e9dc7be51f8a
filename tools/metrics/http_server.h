// A small HTTP server for a few pages: enough for Prometheus and for probes of health, and bounded
// in all that others can make it do.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "tools/cli/descriptor.h"

namespace fracgpu::tools {

class HttpServer {
 public:
  // Listens on "127.0.0.1:9400", "[::1]:9400" or "0.0.0.0:9400"; port 0 means any that is free.
  // Throws std::runtime_error with one line for what is no such address, or cannot be had. Who has
  // not sent a whole request and taken its answer by `deadline_ms` after the connection was
  // accepted is cut off, however often a byte of it comes; what a page takes does not count.
  static constexpr uint64_t kDeadline_ms = 10'000;
  explicit HttpServer(const std::string& address, uint64_t deadline_ms = kDeadline_ms);

  // "http://127.0.0.1:9400"
  const std::string& url() const { return url_; }

  // What makes each page, by its path. One that throws is answered with status 500 and the reason.
  using Pages = std::map<std::string, std::function<std::string()>>;

  // Answers GET and HEAD of these pages until the process ends. Who asks while a page is made
  // shares the next one. Of more than 256 connections the oldest are closed.
  [[noreturn]] void serve(const Pages& pages);

 private:
  const uint64_t deadline_ms_;
  Descriptor listener_;
  std::string url_;
};

}  // namespace fracgpu::tools
