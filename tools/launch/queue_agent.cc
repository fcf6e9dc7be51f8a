// Starts, waits for and counts commands; see queue_agent.h.
#include "tools/launch/queue_agent.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/launch/instance.h"
#include "tools/launch/launch_tree.h"
#include "tools/launch/member.h"

namespace fracgpu::tools {
namespace {

constexpr int kLook_ms = 50;  // between checks of the claim table, while a command waits

}  // namespace

QueueAgent::QueueAgent(std::vector<Queue> queues, const std::vector<Gpu>& gpus, JobSource source,
                       bool json)
    : queues_(std::move(queues)),
      gpus_(gpus),
      source_(std::move(source)),
      json_(json),
      table_(queues_.empty() ? MigView() : queues_[0].request.view()) {
  destroy_orphans(table_, Stuck::left);
  sigset_t caught;
  sigemptyset(&caught);
  for (const int each : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&caught, each);
  sigprocmask(SIG_BLOCK, &caught, &mask_before_);
  signals_ = Descriptor(signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK));
}

void QueueAgent::tell(const Job& job, const std::string& what) const {
  complain(fmt::format("{} {}: {}", job.number, job.queue, what));
}

void QueueAgent::take_jobs() {
  for (Job& job : source_.read()) {
    const auto queue = std::find_if(queues_.begin(), queues_.end(),
                                    [&](const Queue& each) { return each.name == job.queue; });
    if (queue != queues_.end()) queue->pending.push_back(std::move(job));
  }
}

void QueueAgent::enter_next() {
  for (Queue& queue : queues_) {
    if (terminations_ > 0 || queue.waiting || queue.pending.empty()) continue;
    Job job = std::move(queue.pending.front());
    queue.pending.pop_front();
    ClaimRequest wanted = queue.request.claim_request();
    wanted.tenant = fmt::format("{}-{}", tenant_or_new(""), job.number);
    wanted.priority = queue.priority;
    wanted.command = job.command;
    Claim claim = table_.enter(wanted);
    queue.waiting = Queue::Waiting{std::move(job), wanted.tenant, std::move(claim)};
  }
}

// Starts the commands that have been served. True if it started any.
bool QueueAgent::start_served() {
  bool any = false;
  for (Queue& queue : queues_) {
    std::vector<Share> shares;
    if (!queue.waiting || !table_.served(queue.waiting->claim, shares)) continue;
    Queue::Waiting next = std::move(*queue.waiting);
    queue.waiting.reset();
    const pid_t pid = fork();
    if (pid == 0) be_member(queue, std::move(next), shares);
    any = true;
    if (pid < 0) {
      ++failed_;
      tell(next.job, fmt::format("cannot be started: {}", strerror(errno)));
      continue;
    }
    setpgid(pid, pid);  // the child does the same; either may be first
    std::string where;
    for (const Gpu& gpu : queue.request.granted(shares)) {
      where += fmt::format("{}GPU {}", where.empty() ? "" : ", ", gpu.number());
    }
    for (const Share& share : shares) {
      if (share.instance) {
        where += fmt::format("{} of {}", queue.request.instance_text(share),
                             queue.request.label_of(share));
      }
    }
    tell(next.job, fmt::format("started on {}: {}", where, next.job.command));
    running_.emplace(pid, Running{std::move(next.job), Clock::now()});
  }
  return any;
}

// Runs in the child, in its own process group, so that the terminal's Ctrl-C reaches only the
// agent.
void QueueAgent::be_member(Queue& queue, Queue::Waiting waiting, const std::vector<Share>& shares) {
  try {
    setpgid(0, 0);
    for (Queue& each : queues_) each.waiting.reset();  // do not keep others' places
    source_.close();
    signals_ = Descriptor();
    const Descriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
    dup2(nothing.get(), STDIN_FILENO);
    sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
    end_like(run_member(waiting.tenant, {"/bin/sh", "-c", waiting.job.command}, queue.request,
                        gpus_, std::move(waiting.claim), shares));
  } catch (const std::exception& error) {
    complain(error.what());
    _exit(kRunFailed);
  }
}

void QueueAgent::reap() {
  int status = 0;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto found = running_.find(pid);
    if (found == running_.end()) continue;
    const auto [job, start] = std::move(found->second);
    running_.erase(found);
    const bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    ++(good ? done_ : failed_);
    const auto took = std::chrono::duration<double>(Clock::now() - start).count();
    tell(job, fmt::format("{} after {:.1f} s",
                          good ? "done"
                          : WIFSIGNALED(status)
                              ? fmt::format("ended by signal {}", WTERMSIG(status))
                              : fmt::format("failed with status {}", WEXITSTATUS(status)),
                          took));
  }
}

void QueueAgent::obey(int signal) {
  if (signal == SIGCHLD) return reap();
  ++terminations_;
  if (terminations_ == 1) {
    complain(fmt::format("starting nothing more; {} still run", running_.size()));
    for (Queue& queue : queues_) {
      if (!queue.waiting) continue;
      queue.pending.push_front(std::move(queue.waiting->job));
      table_.leave(std::move(queue.waiting->claim));
      queue.waiting.reset();
    }
    return;
  }
  for (const auto& [pid, running] : running_) kill(-pid, terminations_ == 2 ? SIGTERM : SIGKILL);
}

bool QueueAgent::busy() const {
  if (!running_.empty()) return true;
  if (terminations_ > 0) return false;
  return !source_.ended() || std::any_of(queues_.begin(), queues_.end(), [](const Queue& queue) {
    return queue.waiting || !queue.pending.empty();
  });
}

bool QueueAgent::run() {
  while (busy()) {
    do {
      enter_next();
    } while (start_served());
    const bool waits = std::any_of(queues_.begin(), queues_.end(),
                                   [](const Queue& queue) { return queue.waiting.has_value(); });
    const bool reads = !source_.ended() && terminations_ == 0;
    pollfd sources[] = {{signals_.get(), POLLIN, 0}, {reads ? source_.fd() : -1, POLLIN, 0}};
    poll(sources, 2, waits ? kLook_ms : busy() ? -1 : 0);
    signalfd_siginfo info;
    while (read(signals_.get(), &info, sizeof info) == sizeof info) {
      obey(static_cast<int>(info.ssi_signo));
    }
    if (reads && sources[1].revents != 0) take_jobs();
  }
  summarise();
  return source_.jobs() == done_ && source_.refused() == 0 && !source_.failed();
}

void QueueAgent::summarise() const {
  const int not_started = source_.jobs() - done_ - failed_;
  complain(fmt::format("{} done, {} failed, {} not started, {} not understood", done_, failed_,
                       not_started, source_.refused()));
  if (!json_) return;
  print(Json{{"done", done_},
             {"failed", failed_},
             {"not_started", not_started},
             {"not_understood", source_.refused()}}
            .dump() +
        "\n");
}

}  // namespace fracgpu::tools
