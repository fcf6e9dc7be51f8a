// Who is slow to ask must not keep others out.
#include "tools/metrics/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace fracgpu::tools {
namespace {

// A server in a process of its own.
class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest() {
    child_ = fork();
    if (child_ == 0) server_.serve([] { return std::string("page\n"); });
  }
  ~HttpServerTest() override {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }

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

  HttpServer server_{"127.0.0.1:0", 200};
  pid_t child_ = -1;
};

TEST_F(HttpServerTest, AWholeRequestIsAnswered) {
  const Descriptor socket = connected();
  const std::string request = "GET /metrics HTTP/1.1\r\n\r\n";
  ASSERT_EQ(send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  const std::string answer = rest_of(socket);
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\npage\n")) << answer;
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
