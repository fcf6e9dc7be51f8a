// hardware_probe watch --key K --vendor V --cap BYTES --preload LIBRARY --tenant T -- COMMAND …
// runs a command with the library (a cap in whole MiB), in a session of its own, and looks on
// without it: what do the drivers count for the session's processes, at most? Lines of facts of the
// command pass through; a line "look" is answered when one more look was taken.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tests/hardware/observer.h"
#include "tests/hardware/probes.h"

namespace hardware {
namespace {

constexpr int kBetweenLooksMs = 2;

struct Started {
  int pid = -1, from = -1, to = -1;
};

// Whoever ends us in time ends the command with all that it has started.
volatile pid_t command = 0;
void end_with_it(int) {
  if (command > 0) kill(-command, SIGKILL);
  _exit(1);
}

Started start(const Options& options) {
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) throw Unmeasured("pipe");
  const int pid = fork();
  if (pid < 0) throw Unmeasured("fork");
  if (pid == 0) {
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(in[0], 0);
    dup2(out[1], 1);
    const std::string preload = options.text("preload");
    if (!preload.empty()) setenv("LD_PRELOAD", preload.c_str(), 1);
    setenv("FRACGPU_TENANT", options.text("tenant", "acceptance").c_str(), 1);
    setenv("FRACGPU_MEMORY_LIMIT", (std::to_string(options.number("cap") >> 20) + "MiB").c_str(),
           1);
    std::vector<char*> arguments;
    for (const std::string& word : options.command()) {
      arguments.push_back(const_cast<char*>(word.c_str()));
    }
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    std::_Exit(127);
  }
  close(in[0]);
  close(out[1]);
  return {pid, out[0], in[1]};
}

void pass(const std::string& line, Watched* watched, int to) {
  if (line == "look") {
    watched->look();
    [[maybe_unused]] const ssize_t sent = write(to, "\n", 1);
  } else if (!line.empty() && line[0] == '{') {
    std::puts(line.c_str());
    std::fflush(stdout);
  } else if (!line.empty()) {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
}

void tell(const std::string& key, uint64_t cap, const Watched& watched, uint64_t device_before,
          bool by_growth) {
  const auto amount = [&](const char* name, uint64_t bytes) {
    fact(key + name, static_cast<double>(bytes));
  };
  const auto above = [&](uint64_t bytes) { return bytes > cap ? bytes - cap : 0; };
  const uint64_t device =
      watched.device_most() > device_before ? watched.device_most() - device_before : 0;
  amount(".looks", watched.looks());
  amount(".device_grown_bytes", device);
  const std::string over = key + ".over_cap_bytes", by_device = key + ".device_over_cap_bytes";
  if (by_growth && device != 0) {
    // What is shared may be counted for each process that has it, and what is managed for none.
    not_measured(over, "the list does not count such memory: the device's growth is the judge");
    amount(".device_over_cap_bytes", above(device));
    amount(".unused_bytes", device < cap ? cap - device : 0);
  } else if (watched.named()) {
    amount(".high_water_bytes", watched.most());
    amount(".over_cap_bytes", above(watched.most()));
    amount(".unused_bytes", watched.most() < cap ? cap - watched.most() : 0);
    not_measured(by_device, "the driver's count of the processes is the judge");
  } else if (device != 0) {
    not_measured(over, "the driver does not tell what the processes hold");
    amount(".device_over_cap_bytes", above(device));
  } else {
    not_measured(over, "the driver counts nothing for the processes, and the device nothing more");
    not_measured(by_device, "the device's use did not grow");
  }
}

}  // namespace

int watch(const Options& options) {
  signal(SIGPIPE, SIG_IGN);
  const Vendor vendor = options.text("vendor") == "amd" ? Vendor::amd : Vendor::nvidia;
  const std::string key = options.text("key", "cap");
  const std::string over = key + ".over_cap_bytes";
  int status = -1;
  question({over.c_str()}, [&] {
    uint64_t before = 0;
    const bool device_tells = device_used(vendor, &before);
    const Started started = start(options);
    command = started.pid;
    signal(SIGTERM, end_with_it);
    Watched watched(vendor, started.pid);
    std::string text;
    for (bool open = true; open;) {
      pollfd wait = {started.from, POLLIN, 0};
      if (poll(&wait, 1, kBetweenLooksMs) > 0) {
        char bytes[4096];
        const ssize_t count = read(started.from, bytes, sizeof bytes);
        open = count > 0;
        if (open) text.append(bytes, static_cast<size_t>(count));
      }
      for (size_t end; (end = text.find('\n')) != text.npos; text.erase(0, end + 1)) {
        pass(text.substr(0, end), &watched, started.to);
      }
      if (open) watched.look();
    }
    close(started.to);
    waitpid(started.pid, &status, 0);
    tell(key, options.number("cap"), watched, before,
         options.text("judge") == "device" && device_tells);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    fact(key + ".exit_status", code);
    if (code != 0) {
      not_measured(key + ".*", "its program ended with exit status " + std::to_string(code));
    }
  });
  return 0;
}

}  // namespace hardware
