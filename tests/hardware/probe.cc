#include "tests/hardware/probe.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

#include "tests/hardware/json.h"

namespace hardware {
namespace {

std::set<std::string>& told() {
  static std::set<std::string> keys;
  return keys;
}

void print(const std::string& key, const char* what, const std::string& json) {
  told().insert(key);
  std::printf("{\"key\":%s,\"%s\":%s}\n", quoted(key).c_str(), what, json.c_str());
  std::fflush(stdout);
}

constexpr int kPatienceMs = 60000;

}  // namespace

void fact(const std::string& key, double value) {
  print(key, "value", written(value));
}
void fact(const std::string& key, bool value) {
  print(key, "value", value ? "true" : "false");
}
void fact(const std::string& key, const std::string& value) {
  print(key, "value", quoted(value));
}
void not_measured(const std::string& key, const std::string& reason) {
  print(key, "reason", quoted(reason));
}

void question(std::initializer_list<const char*> keys, const std::function<void()>& ask) {
  std::string reason = "the probe did not get that far";
  try {
    ask();
  } catch (const std::exception& error) {
    reason = error.what();
  }
  for (const char* key : keys) {
    if (told().count(key) == 0) not_measured(key, reason);
  }
}

double now_ms() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

void wait_ms(double ms) {
  poll(nullptr, 0, static_cast<int>(ms));
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double time_us(int count, const std::function<void()>& call) {
  std::vector<double> times;
  for (int i = 0; i < count; ++i) {
    const double start = now_ms();
    call();
    times.push_back((now_ms() - start) * 1e3);
  }
  return median(times);
}

Child::Child(const std::function<void(Child&)>& body) {
  int ends[2], gifts[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0 ||
      socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, gifts) != 0) {
    throw Unmeasured("no socket can be made");
  }
  std::fflush(stdout);
  pid_ = fork();
  if (pid_ < 0) throw Unmeasured("fork");
  if (pid_ == 0) {
    close(ends[0]);
    close(gifts[0]);
    from_ = to_ = ends[1];
    gifts_ = gifts[1];
    try {
      body(*this);
    } catch (const std::exception& error) {
      answer(std::string("reason: ") + error.what());
    }
    std::fflush(stdout);
    std::_Exit(0);
  }
  close(ends[1]);
  close(gifts[1]);
  from_ = to_ = ends[0];
  gifts_ = gifts[0];
}

Child::~Child() {
  close(from_);
  close(gifts_);
  // Whoever waits for us sees the end of the line and goes by himself; who hangs is killed.
  for (int i = 0; i < 100; ++i) {
    if (waitpid(pid_, nullptr, WNOHANG) != 0) return;
    wait_ms(20);
  }
  ::kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::string Child::read_line(int timeout_ms, bool* ended) {
  const double end = now_ms() + timeout_ms;
  for (*ended = false;;) {
    const size_t newline = buffer_.find('\n');
    if (newline != buffer_.npos) {
      const std::string line = buffer_.substr(0, newline);
      buffer_.erase(0, newline + 1);
      return line;
    }
    pollfd wait = {from_, POLLIN, 0};
    const double left = end - now_ms();
    char bytes[512];
    const bool ready =
        timeout_ms < 0 || (left > 0 && poll(&wait, 1, static_cast<int>(left) + 1) > 0);
    const ssize_t count = ready ? read(from_, bytes, sizeof bytes) : 0;
    if (count <= 0) {
      *ended = true;
      return "";
    }
    buffer_.append(bytes, static_cast<size_t>(count));
  }
}

void Child::answer(const std::string& line) {
  tell(line);
}

void Child::tell(const std::string& line) {
  const std::string text = line + "\n";
  [[maybe_unused]] const ssize_t sent = send(to_, text.data(), text.size(), MSG_NOSIGNAL);
}

bool Child::wait() {
  bool ended = false;
  read_line(-1, &ended);
  return !ended;
}

void Child::give(int fd) {
  char room[CMSG_SPACE(sizeof fd)] = {};
  char byte = 0;
  iovec part = {&byte, 1};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  if (sendmsg(gifts_, &message, MSG_NOSIGNAL) != 1) throw Unmeasured("no descriptor can be sent");
}

int Child::take() {
  int fd = -1;
  char room[CMSG_SPACE(sizeof fd)] = {};
  char byte = 0;
  iovec part = {&byte, 1};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  if (recvmsg(gifts_, &message, MSG_CMSG_CLOEXEC) != 1) throw Unmeasured("no descriptor came");
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) throw Unmeasured("no descriptor came");
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return fd;
}

std::string Child::ask() {
  bool ended = false;
  const std::string line = read_line(kPatienceMs, &ended);
  if (ended) throw Unmeasured("the process that was to do it ended, or did not answer in a minute");
  if (line.rfind("reason: ", 0) == 0) throw Unmeasured(line.substr(8));
  return line;
}

void Child::kill() {
  ::kill(pid_, SIGKILL);
}

Options::Options(int argc, char** argv) {
  for (int i = 0; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--") {
      command_.assign(argv + i + 1, argv + argc);
      return;
    }
    if (word.rfind("--", 0) != 0 || i + 1 >= argc) {
      std::fprintf(stderr, "hardware_probe: expected --NAME VALUE and not '%s'\n", word.c_str());
      std::exit(2);
    }
    options_.emplace_back(word.substr(2), argv[++i]);
  }
}

bool Options::has(const std::string& name) const {
  return !text(name).empty();
}

std::string Options::text(const std::string& name, const std::string& otherwise) const {
  for (const auto& [key, value] : options_) {
    if (key == name) return value;
  }
  return otherwise;
}

uint64_t Options::number(const std::string& name, uint64_t otherwise) const {
  const std::string value = text(name);
  return value.empty() ? otherwise : std::strtoull(value.c_str(), nullptr, 10);
}

}  // namespace hardware
