// Listens, reads requests and answers them; see http_server.h.
#include "tools/metrics/http_server.h"

#include <errno.h>
#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <deque>
#include <memory>
#include <stdexcept>
#include <vector>

#include "shim/base/clock.h"
#include "shim/base/text.h"

namespace fracgpu::tools {
namespace {

// A scraper has one or two connections. If there are more than this, the oldest must go: a client
// that only connects and waits must not keep out one that asks.
constexpr size_t kMostConnections = 256;
constexpr size_t kLongestRequest = 16 * 1024;

using Body = std::shared_ptr<const std::string>;

struct Connection {
  Descriptor socket;
  uint64_t until_ms = 0;
  std::string request{}, head{};
  Body body{};  // shared by all connections that ask for it at once
  size_t sent = 0;
  bool answered() const { return !head.empty(); }
};

void answer(Connection& connection, const char* status, Body body, const char* type) {
  connection.head = fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", status,
      type, body->size());
  connection.body = std::move(body);
}

// Makes a page once for all clients that ask for it in one round: many requests cost no more than
// one.
class Round {
 public:
  explicit Round(const HttpServer::Pages& pages) : pages_(pages) {}

  void answer_to(Connection& connection) {
    constexpr const char* kText = "text/plain; version=0.0.4; charset=utf-8";
    const auto text = [](std::string_view words) {
      return std::make_shared<const std::string>(words);
    };
    const std::string line = connection.request.substr(0, connection.request.find("\r\n"));
    const size_t first = line.find(' '), last = line.rfind(' ');
    if (first == line.npos || last <= first || !line.substr(last + 1).starts_with("HTTP/1.")) {
      answer(connection, "400 Bad Request", text("this is no HTTP request\n"), kText);
      return;
    }
    const std::string method = line.substr(0, first);
    const std::string target = line.substr(first + 1, last - first - 1);
    const std::string path = target.substr(0, target.find('?'));
    if (method != "HEAD" && method != "GET") {
      answer(connection, "405 Method Not Allowed", text("only GET and HEAD\n"), kText);
      return;
    }
    if (path == "/") {
      answer(connection, "200 OK", text(index()), "text/html; charset=utf-8");
    } else if (const auto page = pages_.find(path); page == pages_.end()) {
      answer(connection, "404 Not Found", text("there is " + names() + "\n"), kText);
    } else {
      const Made& made = made_of(page);
      answer(connection, made.status, made.body, kText);
    }
    if (method == "HEAD") connection.body = text("");
  }

 private:
  struct Made {
    const char* status = "200 OK";
    Body body{};
  };

  const Made& made_of(const HttpServer::Pages::const_iterator& page) {
    Made& made = made_[page->first];
    if (made.body != nullptr) return made;
    try {
      made.body = std::make_shared<const std::string>(page->second());
    } catch (const std::exception& error) {
      made.status = "500 Internal Server Error";
      made.body = std::make_shared<const std::string>(std::string(error.what()) + "\n");
    }
    return made;
  }

  std::string index() const {
    std::string links = "<title>fracgpu</title>";
    for (const auto& [path, make] : pages_) {
      links += fmt::format("<a href=\"{}\">{}</a>\n", path, path.substr(1));
    }
    return links;
  }

  std::string names() const {
    std::string all;
    for (const auto& [path, make] : pages_) all += (all.empty() ? "" : ", ") + path;
    return all;
  }

  const HttpServer::Pages& pages_;
  std::map<std::string, Made> made_;
};

// Reads the bytes that have come; false when the connection is over.
bool read_request(Connection& connection, Round& round) {
  char bytes[4096];
  const ssize_t size = recv(connection.socket.get(), bytes, sizeof bytes, 0);
  if (size < 0) return errno == EAGAIN || errno == EINTR;
  if (size == 0) return false;
  connection.request.append(bytes, static_cast<size_t>(size));
  const bool whole = connection.request.find("\r\n\r\n") != std::string::npos;
  if (!whole && connection.request.size() < kLongestRequest) return true;
  if (!whole) connection.request.clear();
  round.answer_to(connection);
  connection.request = std::string();
  return true;
}

// Sends as many bytes as it can without waiting; false when the connection is over.
bool send_answer(Connection& connection) {
  for (;;) {
    const bool in_head = connection.sent < connection.head.size();
    const std::string& from = in_head ? connection.head : *connection.body;
    const size_t at = connection.sent - (in_head ? 0 : connection.head.size());
    if (at == from.size()) break;
    const ssize_t size =
        send(connection.socket.get(), from.data() + at, from.size() - at, MSG_NOSIGNAL);
    if (size < 0) return errno == EAGAIN || errno == EINTR;
    connection.sent += static_cast<size_t>(size);
  }
  // Bytes that the client still sends would otherwise reset the connection before it has read the
  // answer.
  shutdown(connection.socket.get(), SHUT_WR);
  return false;
}

// Accepts the waiting connections. The oldest connections make room for them, except those that
// came in the same round: the server reads their requests before it may drop them.
void accept_all(int listener, uint64_t deadline_ms, std::deque<Connection>& connections) {
  for (size_t taken = 0; taken < kMostConnections; ++taken) {
    Descriptor socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.get() < 0) {
      const bool full = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
      if (!full) return;
      if (connections.size() <= taken) {
        sleep_ms(50);  // for descriptors to come back
        return;
      }
      connections.pop_front();
      continue;
    }
    if (connections.size() == kMostConnections) connections.pop_front();
    connections.push_back({std::move(socket), coarse_now_ms() + deadline_ms});
  }
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

void HttpServer::serve(const Pages& pages) {
  std::deque<Connection> connections;  // the oldest first
  for (;;) {
    std::vector<pollfd> sources = {{listener_.get(), POLLIN, 0}};
    for (const Connection& each : connections) {
      const auto wanted = static_cast<short>(each.answered() ? POLLOUT : POLLIN);
      sources.push_back({each.socket.get(), wanted, 0});
    }
    poll(sources.data(), sources.size(), connections.empty() ? -1 : 1000);
    Round round(pages);
    const uint64_t now = coarse_now_ms();
    std::deque<Connection> kept;
    for (size_t i = 0; i < connections.size(); ++i) {
      // The request is read before the deadline counts: it may have waited for the page of another
      // connection.
      Connection& each = connections[i];
      const bool ready = sources[i + 1].revents != 0;
      bool goes_on = !ready || each.answered() || read_request(each, round);
      goes_on = goes_on && (!each.answered() || send_answer(each));
      if (goes_on && now < each.until_ms) kept.push_back(std::move(each));
    }
    connections = std::move(kept);
    // The time that pages took does not count against any client.
    const uint64_t took = coarse_now_ms() - now;
    for (Connection& each : connections) each.until_ms += took;
    if (sources[0].revents != 0) accept_all(listener_.get(), deadline_ms_, connections);
  }
}

}  // namespace fracgpu::tools
