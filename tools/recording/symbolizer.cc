// See symbolizer.h. A message is its length, followed by texts that each end with a zero.
#include "tools/recording/symbolizer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

#include "tools/recording/module_names.h"

namespace fracgpu::recording {
namespace {

constexpr uint32_t kLongest = 4 << 20;  // bytes of a message
constexpr rlim_t kMostMemory = rlim_t{4} << 30;
// Opening gigabytes of debugging information takes seconds, and downloading them takes longer.
constexpr time_t kPatience_s = 30, kPatienceWithDownload_s = 150;

bool send_all(int fd, const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t sent = send(fd, bytes, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

using Texts = std::vector<std::string>;

bool send_texts(int fd, const Texts& texts) {
  std::string message(sizeof(uint32_t), '\0');
  for (const std::string& each : texts) message += each.c_str() + std::string(1, '\0');
  const uint32_t size = static_cast<uint32_t>(message.size() - sizeof(uint32_t));
  if (size > kLongest) return false;
  memcpy(message.data(), &size, sizeof size);
  return send_all(fd, message.data(), message.size());
}

// Nothing is ever sent after a message, so all received bytes belong to it.
bool receive_texts(int fd, Texts& texts) {
  std::string message;
  uint32_t size = 0;
  while (message.size() < sizeof size || message.size() < sizeof size + size) {
    char bytes[8192];
    const ssize_t received = recv(fd, bytes, sizeof bytes, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) return false;
    message.append(bytes, static_cast<size_t>(received));
    if (message.size() >= sizeof size) memcpy(&size, message.data(), sizeof size);
    if (size > kLongest) return false;
  }
  texts.clear();
  for (size_t at = sizeof size; at < message.size();) {
    const size_t zero = message.find('\0', at);
    if (zero == message.npos) return false;
    texts.push_back(message.substr(at, zero - at));
    at = zero + 1;
  }
  return true;
}

// Answers queries until the other end is closed.
void serve(int fd, const std::vector<std::string>& roots) {
  std::map<Texts, std::unique_ptr<ModuleNames>> modules;
  for (Texts asked; receive_texts(fd, asked) && asked.size() == 4;) {
    const uint64_t address = strtoull(asked.back().c_str(), nullptr, 10);
    asked.pop_back();
    auto& names = modules[asked];
    if (!names) {
      names = std::make_unique<ModuleNames>(ModuleInfo{asked[0], asked[1]}, roots, asked[2] == "1");
    }
    Texts answer;
    for (const Place& each : names->at(address)) {
      answer.insert(answer.end(), {each.function, each.file, std::to_string(each.line)});
    }
    if (!send_texts(fd, answer)) return;
  }
}

}  // namespace

std::vector<Place> Symbolizer::look_up(const ModuleInfo& module, uint64_t address) {
  Trust& trust =
      trust_.try_emplace({module.path, module.build_id}, Trust::everything).first->second;
  std::vector<Place> places;
  while (trust != Trust::nothing) {
    if (child_ < 0 && !start()) return {};
    if (ask(module, trust, address, places)) return places;
    end();
    trust = static_cast<Trust>(static_cast<int>(trust) - 1);
  }
  return {};
}

bool Symbolizer::ask(const ModuleInfo& module, Trust trust, uint64_t address,
                     std::vector<Place>& places) {
  const char* const debug = trust == Trust::everything ? "1" : "0";
  Texts texts;
  if (!send_texts(line_.get(), {module.path, module.build_id, debug, std::to_string(address)}) ||
      !receive_texts(line_.get(), texts) || texts.size() % 3 != 0) {
    return false;
  }
  places.clear();
  for (size_t i = 0; i < texts.size(); i += 3) {
    places.push_back({texts[i], texts[i + 1], atoi(texts[i + 2].c_str()), ""});
  }
  return true;
}

bool Symbolizer::start() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
  line_ = tools::Descriptor(ends[0]);
  const tools::Descriptor others(ends[1]);
  const bool downloads = getenv("DEBUGINFOD_URLS") != nullptr;
  const timeval patience = {downloads ? kPatienceWithDownload_s : kPatience_s, 0};
  setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  const pid_t parent = getpid();
  child_ = fork();
  if (child_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    const rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they reserve terabytes
    const rlimit enough = {kMostMemory, kMostMemory};
    setrlimit(RLIMIT_DATA, &enough);
#endif
    close(ends[0]);
    // The child must print nothing. The caller reports its end if that matters.
    const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) dup2(nowhere, fd);
    try {
      serve(ends[1], roots_);
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  return child_ > 0;
}

void Symbolizer::end() {
  if (child_ < 0) return;
  kill(child_, SIGKILL);
  while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
  child_ = -1;
  line_ = tools::Descriptor();
}

}  // namespace fracgpu::recording
