// simulated_kfd start PROFILE [MIB]  make a machine with those cards; prints "ready PID", where PID
//                                    names the machine; runs until its input ends
// simulated_kfd run PID COMMAND …    become COMMAND on that machine
// simulated_kfd show PID             print KFD's accounting as JSON
// simulated_kfd hold PID             lock the accounting until the input ends, like a process that
// is
//                                    stopped in an ioctl; prints "held"
// simulated_kfd reset PID            reset peaks to what is used now
// Exit status: 77 if no machine can be made here, 2 for wrong usage, 1 for other failures.
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "accounting.h"
#include "machine.h"
#include "sim/node/node.h"

namespace {

int fail(const std::string& why, int status = 1) {
  std::fprintf(stderr, "simulated_kfd: %s\n", why.c_str());
  return status;
}

// Frees the memory of dead processes, as the kernel does when it closes their files, until the
// input ends. Then kills the processes that still use the driver.
void keep(kfd::Accounting* accounting) {
  constexpr int kReapMilliseconds = 5;
  pollfd input{STDIN_FILENO, POLLIN, 0};
  char ignored[64];
  for (;;) {
    const int ready = poll(&input, 1, kReapMilliseconds);
    if (ready > 0 && read(STDIN_FILENO, ignored, sizeof ignored) <= 0) break;
    if (const auto lock = kfd::Lock::if_free(accounting)) kfd::reap(*accounting);
  }
  for (const kfd::Process& process : accounting->process) {
    if (process.pid != 0 && kfd::start_time_of(process.pid) == process.start_time) {
      kill(process.pid, SIGKILL);
    }
  }
}

int start(const std::string& profile, const char* mib) {
  sim::NodeOptions options;
  if (mib != nullptr) options.total_mib = std::atoll(mib);
  std::string why;
  const auto node = std::make_unique<sim::NodeFile>();
  if (!sim::fill_profile(node.get(), profile, options, &why)) return fail(why, 2);
  if (node->header.device_count > kfd::kMaxCards) return fail("too many cards", 2);
  signal(SIGINT, SIG_IGN);  // only the end of input ends it
  if (!kfd::make_namespace(&why)) return fail(why, 77);
  if (!kfd::make_machine(*node, &why)) return fail(why);
  kfd::Accounting* const accounting = kfd::open_accounting();
  std::printf("ready %d\n", getpid());
  std::fflush(stdout);
  keep(accounting);
  return 0;
}

unsigned long long number(uint64_t value) {
  return value;
}

void show(const kfd::Accounting& accounting) {
  std::printf("{\"unknown_ioctls\": %u, \"cards\": [", accounting.unknown_ioctls);
  for (uint32_t c = 0; c < accounting.cards; ++c) {
    const kfd::Card& card = accounting.card[c];
    std::printf("%s{\"gpu_id\": %u, \"total\": %llu, \"used\": %llu, \"peak\": %llu}",
                c > 0 ? ", " : "", card.gpu_id, number(card.total), number(card.resident()),
                number(card.peak));
  }
  std::printf("], \"processes\": [");
  const char* comma = "";
  for (const kfd::Process& process : accounting.process) {
    if (process.pid == 0) continue;
    std::printf("%s{\"pid\": %d, \"vram\": [", comma, process.pid);
    for (uint32_t c = 0; c < accounting.cards; ++c) {
      std::printf("%s%llu", c > 0 ? ", " : "", number(process.vram[c]));
    }
    std::printf("], \"peak\": [");
    for (uint32_t c = 0; c < accounting.cards; ++c) {
      std::printf("%s%llu", c > 0 ? ", " : "", number(process.peak[c]));
    }
    std::printf("], \"waits_for_event\": %u, \"blocked_queue\": \"%.*s\"}", process.waits_for_event,
                static_cast<int>(sizeof process.blocked_queue - 1), process.blocked_queue);
    comma = ", ";
  }
  std::printf("]}\n");
}

void reset(kfd::Accounting& accounting) {
  for (uint32_t c = 0; c < accounting.cards; ++c)
    accounting.card[c].peak = accounting.card[c].resident();
}

void hold() {
  std::puts("held");
  std::fflush(stdout);
  char ignored[64];
  while (read(STDIN_FILENO, ignored, sizeof ignored) > 0) {
  }
}

int run(char** command) {
  execvp(command[0], command);
  return fail(std::string(command[0]) + ": " + std::strerror(errno), 127);
}

}  // namespace

int main(int count, char** words) {
  const std::string what = count >= 3 ? words[1] : "";
  if (what == "start") return start(words[2], count > 3 ? words[3] : nullptr);
  if (what != "run" && what != "show" && what != "hold" && what != "reset") {
    return fail(
        "usage: simulated_kfd start PROFILE [MIB] | run PID COMMAND… | show PID | hold PID | reset "
        "PID",
        2);
  }
  std::string why;
  if (!kfd::join_namespace(std::atoi(words[2]), &why)) return fail(why);
  if (what == "run") return count > 3 ? run(words + 3) : fail("no command", 2);
  kfd::Accounting* const accounting = kfd::open_accounting();
  if (accounting == nullptr) return fail("no machine has this number");
  const kfd::Lock lock(accounting);
  kfd::reap(*accounting);
  if (what == "show") show(*accounting);
  if (what == "hold") hold();
  if (what == "reset") reset(*accounting);
  return 0;
}
