// Starts programs by posix_spawn and collects what they print; see program.h.
#include "tests/integration/program.h"

#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <sstream>

namespace fracgpu::test {

Program::Program(const std::vector<std::string>& args, const Environment& environment) {
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) return;
  err_ = memfd_create("stderr", MFD_CLOEXEC);  // a file: a chatty program must not block
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  posix_spawn_file_actions_adddup2(&actions, err_, 2);
  std::vector<std::string> pairs;
  for (const auto& [name, value] : environment) pairs.push_back(name + "=" + value);
  std::vector<char*> argv, envp;
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  for (const std::string& pair : pairs) envp.push_back(const_cast<char*>(pair.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  if (posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), envp.data()) != 0) pid_ = -1;
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  in_ = in[1];
  out_ = out[0];
}

Program::~Program() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (const int fd : {in_, out_, err_}) {
    if (fd >= 0) close(fd);
  }
}

std::string Program::read_line() {
  for (;;) {
    const size_t newline = buffered_.find('\n');
    if (newline != std::string::npos) {
      const std::string line = buffered_.substr(0, newline);
      buffered_.erase(0, newline + 1);
      return line;
    }
    char bytes[4096];
    const ssize_t got = read(out_, bytes, sizeof bytes);
    if (got <= 0) return {};
    buffered_.append(bytes, static_cast<size_t>(got));
  }
}

std::vector<std::string> Program::read_until_ready() {
  std::vector<std::string> lines;
  for (std::string line = read_line(); line != "ready" && !line.empty(); line = read_line()) {
    lines.push_back(line);
  }
  return lines;
}

void Program::go_on() {
  go_on_with("");
}

void Program::go_on_with(const std::string& line) {
  const std::string text = line + "\n";
  [[maybe_unused]] const ssize_t written = write(in_, text.data(), text.size());
}

void Program::outlast_start_time() const {
  std::ifstream file("/proc/" + std::to_string(pid_) + "/stat");
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  std::istringstream fields(stat.substr(stat.rfind(')') + 2));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  long long start = 0;
  fields >> start;
  const long per_second = sysconf(_SC_CLK_TCK);
  timespec now = {};
  do {
    sched_yield();
    clock_gettime(CLOCK_BOOTTIME, &now);
  } while (now.tv_sec * per_second + now.tv_nsec / (1000000000 / per_second) <= start);
}

void Program::kill(int signal) {
  if (pid_ > 0) ::kill(pid_, signal);  // -1 would be everybody
}

bool Program::stop() {
  kill(SIGSTOP);
  siginfo_t change{};
  return waitid(P_PID, static_cast<id_t>(pid_), &change, WSTOPPED | WEXITED | WNOWAIT) == 0 &&
         change.si_code == CLD_STOPPED;
}

Outcome Program::finish() {
  Outcome outcome;
  if (pid_ <= 0) return outcome;
  close(in_);
  in_ = -1;
  outcome.out = buffered_;
  char bytes[4096];
  for (ssize_t got; (got = read(out_, bytes, sizeof bytes)) > 0;) {
    outcome.out.append(bytes, static_cast<size_t>(got));
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  lseek(err_, 0, SEEK_SET);
  for (ssize_t got; (got = read(err_, bytes, sizeof bytes)) > 0;) {
    outcome.err.append(bytes, static_cast<size_t>(got));
  }
  return outcome;
}

Outcome run(const std::vector<std::string>& args, const Environment& environment) {
  return Program(args, environment).finish();
}

long long field(const std::string& line, const std::string& key) {
  const size_t at = line.find(key);
  if (at == std::string::npos) return -1;
  return static_cast<long long>(std::strtoull(line.c_str() + at + key.size(), nullptr, 0));
}

std::string line_of(const std::string& text, const std::string& word, int nth) {
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const bool match = line.compare(0, word.size(), word) == 0 &&
                       (line.size() == word.size() || line[word.size()] == ' ');
    if (match && nth-- == 0) return line;
  }
  return {};
}

}  // namespace fracgpu::test
