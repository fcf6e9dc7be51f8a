// Who is slow to ask must not keep others out.
#include "tools/metrics/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <vector>

namespace fracgpu::tools {
namespace {

// A server in a process of its own.
class HttpServerTest : public testing::Test {
 protected:
  explicit HttpServerTest(uint64_t deadline_ms = 200) : server_("127.0.0.1:0", deadline_ms) {
    void* bytes =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared_ = new (bytes) Shared{};
    child_ = fork();
    if (child_ == 0) server_.serve({{"/metrics", [this] { return page(); }}});
  }
  ~HttpServerTest() override {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    munmap(shared_, sizeof(Shared));
  }

  // Large, so that who does not read it stops the server's sending. The first waits for let_go() if
  // somebody waits for it.
  std::string page() const {
    if (++shared_->pages == 1 && shared_->held != 0) {
      while (shared_->held != 0) sched_yield();
    }
    return std::string(1 << 20, ' ') + "page\n";
  }
  void wait_for_page(uint32_t number) const {
    while (shared_->pages < number) sched_yield();
  }
  void let_go() const { shared_->held = 0; }

  Descriptor connected() const {
    const std::string url = server_.url();
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(url.substr(url.rfind(':') + 1))));
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return socket;
  }

  // What comes until the server ends the connection.
  static std::string rest_of(const Descriptor& socket) {
    std::string text;
    char bytes[4096];
    for (ssize_t size; (size = recv(socket.get(), bytes, sizeof bytes, 0)) > 0;) {
      text.append(bytes, static_cast<size_t>(size));
    }
    return text;
  }

  struct Shared {
    std::atomic<uint32_t> pages, held;
  };
  HttpServer server_;
  Shared* shared_ = nullptr;
  pid_t child_ = -1;
};

TEST_F(HttpServerTest, AWholeRequestIsAnswered) {
  const Descriptor socket = connected();
  const std::string request = "GET /metrics HTTP/1.1\r\n\r\n";
  ASSERT_EQ(send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  const std::string answer = rest_of(socket);
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer.substr(0, 99);
  EXPECT_TRUE(answer.ends_with(" page\n")) << answer.size();
}

// A server that would wait for an hour for who says nothing.
class PatientServerTest : public HttpServerTest {
 protected:
  PatientServerTest() : HttpServerTest(3'600'000) {}

  static void ask(const Descriptor& socket) {
    const std::string request = "GET /metrics HTTP/1.1\r\n\r\n";
    EXPECT_EQ(send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
  }
};

TEST_F(PatientServerTest, IdleConnectionsKeepNobodyOut) {
  std::vector<Descriptor> idle;
  for (int i = 0; i < 600; ++i) {
    idle.push_back(connected());
    if (i % 3 == 0) {
      ASSERT_EQ(send(idle.back().get(), "GET /", 5, MSG_NOSIGNAL), 5);
    }
    if (i % 100 != 0) continue;
    const Descriptor socket = connected();
    ask(socket);
    EXPECT_TRUE(rest_of(socket).starts_with("HTTP/1.1 200 OK\r\n")) << i;
  }
}

// Those that ask and never read what they get.
TEST_F(PatientServerTest, ReadersThatStopKeepNobodyOut) {
  std::vector<Descriptor> lazy;
  for (int i = 0; i < 600; ++i) {
    lazy.push_back(connected());
    ask(lazy.back());
  }
  const Descriptor socket = connected();
  ask(socket);
  EXPECT_TRUE(rest_of(socket).starts_with("HTTP/1.1 200 OK\r\n"));
}

// While a page is made, others ask; they share the next one.
TEST_F(PatientServerTest, ManyWhoAskAtOnceShareOnePage) {
  shared_->held = 1;
  const Descriptor first = connected();
  ask(first);
  wait_for_page(1);
  std::vector<Descriptor> many;
  for (int i = 0; i < 100; ++i) {
    many.push_back(connected());
    ask(many.back());
  }
  let_go();
  EXPECT_TRUE(rest_of(first).starts_with("HTTP/1.1 200 OK\r\n"));
  for (const Descriptor& each : many) {
    EXPECT_TRUE(rest_of(each).starts_with("HTTP/1.1 200 OK\r\n"));
  }
  EXPECT_LE(shared_->pages.load(), 4u) << "the kernel may hand them over in a few rounds";
}

// A byte each millisecond, and no end: without a deadline the server would read them for 16
// seconds, until they are more than any request has, and would answer then.
TEST_F(HttpServerTest, WhoSendsByteByByteIsCutOff) {
  const Descriptor socket = connected();
  pollfd source = {socket.get(), POLLIN, 0};
  do {
    if (send(socket.get(), "x", 1, MSG_NOSIGNAL) != 1) break;
  } while (poll(&source, 1, 1) == 0);
  EXPECT_EQ(rest_of(socket), "");
}

}  // namespace
}  // namespace fracgpu::tools
