// Listens, reads requests and answers them; see http_server.h.
#include "tools/metrics/http_server.h"

#include <errno.h>
#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <memory>
#include <stdexcept>
#include <vector>

#include "shim/base/clock.h"
#include "shim/base/text.h"

namespace fracgpu::tools {
namespace {

constexpr size_t kMostConnections = 32;
constexpr size_t kLongestRequest = 16 * 1024;

struct Connection {
  Descriptor socket;
  uint64_t until_ms = 0;
  std::string request{}, answer{};
  size_t sent = 0;
};

std::string answer_of(const char* status, const char* type, const std::string& body,
                      bool with_body) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
      status, type, body.size(), with_body ? body : "");
}

std::string answer_to(const std::string& request, const std::function<std::string()>& page) {
  constexpr const char* kText = "text/plain; version=0.0.4; charset=utf-8";
  const std::string line = request.substr(0, request.find("\r\n"));
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == line.npos || last <= first || !line.substr(last + 1).starts_with("HTTP/1.")) {
    return answer_of("400 Bad Request", kText, "this is no HTTP request\n", true);
  }
  const std::string method = line.substr(0, first);
  const std::string target = line.substr(first + 1, last - first - 1);
  const std::string path = target.substr(0, target.find('?'));
  const bool head = method == "HEAD";
  if (!head && method != "GET") {
    return answer_of("405 Method Not Allowed", kText, "only GET and HEAD\n", true);
  }
  if (path == "/") {
    return answer_of("200 OK", "text/html; charset=utf-8",
                     "<title>fracgpu</title><a href=\"/metrics\">metrics</a>\n", !head);
  }
  if (path != "/metrics") return answer_of("404 Not Found", kText, "there is /metrics\n", !head);
  try {
    return answer_of("200 OK", kText, page(), !head);
  } catch (const std::exception& error) {
    return answer_of("500 Internal Server Error", kText, std::string(error.what()) + "\n", !head);
  }
}

// Goes on as far as it can without waiting; false when the connection is over.
bool advance(Connection& connection, const std::function<std::string()>& page) {
  const int fd = connection.socket.get();
  if (connection.answer.empty()) {
    char bytes[4096];
    const ssize_t size = recv(fd, bytes, sizeof bytes, 0);
    if (size < 0) return errno == EAGAIN || errno == EINTR;
    if (size == 0) return false;
    connection.request.append(bytes, static_cast<size_t>(size));
    const bool whole = connection.request.find("\r\n\r\n") != std::string::npos;
    if (!whole && connection.request.size() < kLongestRequest) return true;
    const uint64_t before = coarse_now_ms();
    connection.answer = answer_to(whole ? connection.request : "", page);
    connection.until_ms += coarse_now_ms() - before;
  }
  while (connection.sent < connection.answer.size()) {
    const ssize_t size = send(fd, connection.answer.data() + connection.sent,
                              connection.answer.size() - connection.sent, MSG_NOSIGNAL);
    if (size < 0) return errno == EAGAIN || errno == EINTR;
    connection.sent += static_cast<size_t>(size);
  }
  // What the other side still sends would otherwise reset the connection before it has read.
  shutdown(fd, SHUT_WR);
  return false;
}

}  // namespace

HttpServer::HttpServer(const std::string& address, uint64_t deadline_ms)
    : deadline_ms_(deadline_ms) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon == address.npos ? 0 : colon);
  const std::string port = colon == address.npos ? "" : address.substr(colon + 1);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  addrinfo hints = {}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  if (host.empty() || port.empty() || port.size() > 5 ||
      port.find_first_not_of("0123456789") != port.npos || std::stoi(port) > 65535 ||
      getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) {
    throw std::runtime_error(
        fmt::format("{} is no address to listen on; accepted: 127.0.0.1:9400, [::1]:9400, and "
                    "0.0.0.0:9400 for everybody",
                    fracgpu::quoted(address).view()));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  listener_ = Descriptor(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_storage bound = {};
  socklen_t size = sizeof bound;
  if (listener_.get() < 0 || bind(listener_.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      listen(listener_.get(), SOMAXCONN) != 0 ||
      getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    throw std::runtime_error(
        fmt::format("cannot listen on {}: {}", fracgpu::quoted(address).view(), strerror(errno)));
  }
  const in_port_t number = bound.ss_family == AF_INET6
                               ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                               : reinterpret_cast<sockaddr_in&>(bound).sin_port;
  url_ = fmt::format("http://{}:{}", address.substr(0, colon), ntohs(number));
}

void HttpServer::serve(const std::function<std::string()>& page) {
  std::vector<Connection> connections;
  for (;;) {
    // Who comes when all places are taken waits in the kernel's queue.
    const bool room = connections.size() < kMostConnections;
    std::vector<pollfd> sources = {{room ? listener_.get() : -1, POLLIN, 0}};
    for (const Connection& each : connections) {
      const auto wanted = static_cast<short>(each.answer.empty() ? POLLIN : POLLOUT);
      sources.push_back({each.socket.get(), wanted, 0});
    }
    poll(sources.data(), sources.size(), connections.empty() ? -1 : 1000);
    const uint64_t now = coarse_now_ms();
    std::vector<Connection> kept;
    for (size_t i = 0; i < connections.size(); ++i) {
      // What has come is looked at first: it may have waited for the page of another connection.
      const bool ready = sources[i + 1].revents != 0;
      if (ready && !advance(connections[i], page)) continue;
      if (now < connections[i].until_ms) kept.push_back(std::move(connections[i]));
    }
    connections = std::move(kept);
    if (sources[0].revents == 0) continue;
    Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.get() >= 0) {
      connections.push_back({std::move(socket), coarse_now_ms() + deadline_ms_});
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
      sleep_ms(50);  // for descriptors to come back
    }
  }
}

}  // namespace fracgpu::tools
