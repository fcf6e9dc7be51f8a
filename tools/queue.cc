// `fracgpu queue`; see queue.h. Of each queue the next command waits in the machine's book, the
// first queue with the highest priority; the book decides, as it does for everybody else. What has
// been served is run by a child that stands for `fracgpu run`, so that it keeps its share whatever
// becomes of the agent.
#include "tools/queue.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "tools/launch_tree.h"
#include "tools/member.h"
#include "tools/output.h"
#include "tools/text_list.h"

namespace fracgpu::tools {
namespace {

constexpr const char* kExamples = R"(Examples:
  fracgpu queue --queue quarter=0.25 --queue half=0.5 --queue dual=2 jobs.txt

with a command a line in jobs.txt, for the shell, behind its queue's name (which may be left out
where there is one queue only):
  quarter: python evaluate.py --model a
  dual: torchrun --nproc-per-node 2 train.py

  find . -name '*.sh' -print0 | fracgpu queue -0 --queue each=0.125

A queue that stands before another one is served before it. SIGTERM lets what runs end and starts
nothing more, a second one passes SIGTERM on to what runs, a third one kills it.
Exit status: 0 all succeeded; 1 some failed, or were not started; 2 wrong usage.)";

constexpr int kLook_ms = 50;  // at the book, while a command waits

struct QueueOptions {
  std::vector<std::string> queues;
  std::string gpus, file = "-";
  int priority = 0;
  bool null_separated = false, json = false;
};

using Clock = std::chrono::steady_clock;

struct Job {
  int number = 0;
  std::string queue, command;
};

struct Waiting {
  Job job;
  std::string tenant;
  Claim claim;
};

struct Running {
  Job job;
  Clock::time_point start;
};

struct Queue {
  std::string name;
  Request request;
  int priority;
  std::deque<Job> pending;
  std::optional<Waiting> waiting;
};

// "half=0.5" is a share, "dual=2" so many whole GPUs.
Queue queue_of(const std::string& text, const std::string& gpus, const std::vector<Gpu>& all) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  if (equals == text.npos || name.empty() || name.find_first_of(": \t") != name.npos) {
    throw std::runtime_error(
        fmt::format("{} is no queue; accepted: NAME=SHARE, as in quarter=0.25, half=0.5, dual=2",
                    fracgpu::quoted(text).view()));
  }
  const std::string size = text.substr(equals + 1);
  RequestText request{.memory = {}, .fraction = {}, .count = {}, .gpus = gpus};
  const bool whole = size == "2" || size == "4";
  (whole ? request.count : request.fraction) = size.empty() ? "?" : size;
  return {name, Request(request, all), 0, {}, std::nullopt};
}

class Agent {
 public:
  Agent(const QueueOptions& options);
  // Runs until all is done; whether all succeeded.
  bool run();

 private:
  bool busy() const;
  void read_input();
  void take_line(std::string_view line);
  void enter_next();
  bool start_served();
  [[noreturn]] void be_member(Queue& queue, Waiting waiting, const std::vector<Share>& shares);
  void reap();
  void obey(int signal);
  void tell(const Job& job, const std::string& what) const;
  void summarise() const;

  const QueueOptions& options_;
  const std::vector<Gpu> gpus_ = list_gpus();
  std::vector<Queue> queues_;
  Book book_;
  Descriptor input_, signals_;
  sigset_t mask_before_;
  std::string unread_;
  bool input_ended_ = false;
  int lines_ = 0, jobs_ = 0, done_ = 0, failed_ = 0, refused_ = 0;
  int terminations_ = 0;  // signals so far
  std::map<pid_t, Running> running_;
};

Agent::Agent(const QueueOptions& options) : options_(options) {
  for (const std::string& text : options.queues) {
    Queue queue = queue_of(text, options.gpus, gpus_);
    for (const Queue& other : queues_) {
      if (other.name == queue.name) {
        throw std::runtime_error(fmt::format("queue {} is given twice", queue.name));
      }
    }
    queues_.push_back(std::move(queue));
  }
  for (size_t i = 0; i < queues_.size(); ++i) {
    queues_[i].priority = options.priority + static_cast<int>(queues_.size() - 1 - i);
  }
  const bool is_stdin = options.file == "-";
  input_ = Descriptor(is_stdin ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                               : open(options.file.c_str(), O_RDONLY | O_CLOEXEC));
  if (input_.get() < 0) {
    throw std::runtime_error(fmt::format(
        "cannot read {}: {}", is_stdin ? "standard input" : options.file, strerror(errno)));
  }
  sigset_t caught;
  sigemptyset(&caught);
  for (const int each : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&caught, each);
  sigprocmask(SIG_BLOCK, &caught, &mask_before_);
  signals_ = Descriptor(signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK));
}

void Agent::tell(const Job& job, const std::string& what) const {
  complain(fmt::format("{} {}: {}", job.number, job.queue, what));
}

// What is readable now, split into commands.
void Agent::read_input() {
  char bytes[65536];
  const ssize_t size = read(input_.get(), bytes, sizeof bytes);
  if (size < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (size < 0) complain(fmt::format("cannot read {}: {}", options_.file, strerror(errno)));
  const char separator = options_.null_separated ? '\0' : '\n';
  if (size > 0) {
    unread_.append(bytes, static_cast<size_t>(size));
  } else {
    input_ended_ = true;
    if (!unread_.empty()) unread_ += separator;
  }
  size_t start = 0;
  for (size_t end; (end = unread_.find(separator, start)) != unread_.npos; start = end + 1) {
    take_line(std::string_view(unread_).substr(start, end - start));
  }
  unread_.erase(0, start);
}

void Agent::take_line(std::string_view line) {
  ++lines_;
  line = trim(line);
  if (line.empty() || (line[0] == '#' && !options_.null_separated)) return;
  const size_t colon = line.find(':');
  Queue* queue = queues_.size() == 1 ? &queues_[0] : nullptr;
  for (Queue& each : queues_) {
    if (colon == line.npos || trim(line.substr(0, colon)) != each.name) continue;
    queue = &each;
    line = trim(line.substr(colon + 1));
  }
  if (queue == nullptr || line.empty()) {
    ++refused_;
    complain(fmt::format("command {} {} {}; write NAME: COMMAND", lines_,
                         fracgpu::quoted(line).view(),
                         queue == nullptr ? "names no queue" : "is empty"));
    return;
  }
  queue->pending.push_back({++jobs_, queue->name, std::string(line)});
}

void Agent::enter_next() {
  for (Queue& queue : queues_) {
    if (terminations_ > 0 || queue.waiting || queue.pending.empty()) continue;
    Job job = std::move(queue.pending.front());
    queue.pending.pop_front();
    Asking asking = queue.request.asking();
    asking.tenant = fmt::format("{}-{}", tenant_or_new(""), job.number);
    asking.priority = queue.priority;
    asking.command = job.command;
    Claim claim = book_.enter(asking);
    queue.waiting = Waiting{std::move(job), asking.tenant, std::move(claim)};
  }
}

// Starts what has been served. True if anything was.
bool Agent::start_served() {
  bool any = false;
  for (Queue& queue : queues_) {
    std::vector<Share> shares;
    if (!queue.waiting || !book_.served(queue.waiting->claim, shares)) continue;
    Waiting next = std::move(*queue.waiting);
    queue.waiting.reset();
    const pid_t pid = fork();
    if (pid == 0) be_member(queue, std::move(next), shares);
    any = true;
    if (pid < 0) {
      ++failed_;
      tell(next.job, fmt::format("cannot be started: {}", strerror(errno)));
      continue;
    }
    setpgid(pid, pid);  // as the child does; whoever is first
    std::string where;
    for (const Gpu& gpu : queue.request.granted(shares)) {
      where += fmt::format("{}GPU {}", where.empty() ? "" : ", ", gpu.index);
    }
    tell(next.job, fmt::format("started on {}: {}", where, next.job.command));
    running_.emplace(pid, Running{std::move(next.job), Clock::now()});
  }
  return any;
}

// In the child: its own process group, so that the terminal's Ctrl-C reaches the agent alone.
void Agent::be_member(Queue& queue, Waiting waiting, const std::vector<Share>& shares) {
  try {
    setpgid(0, 0);
    for (Queue& each : queues_) each.waiting.reset();  // others' places are not kept here
    input_ = Descriptor();
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

void Agent::reap() {
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

void Agent::obey(int signal) {
  if (signal == SIGCHLD) return reap();
  ++terminations_;
  if (terminations_ == 1) {
    complain(fmt::format("starting nothing more; {} still run", running_.size()));
    for (Queue& queue : queues_) {
      if (!queue.waiting) continue;
      queue.pending.push_front(std::move(queue.waiting->job));
      book_.leave(std::move(queue.waiting->claim));
      queue.waiting.reset();
    }
    return;
  }
  for (const auto& [pid, running] : running_) kill(-pid, terminations_ == 2 ? SIGTERM : SIGKILL);
}

bool Agent::busy() const {
  if (!running_.empty()) return true;
  if (terminations_ > 0) return false;
  return !input_ended_ || std::any_of(queues_.begin(), queues_.end(), [](const Queue& queue) {
    return queue.waiting || !queue.pending.empty();
  });
}

bool Agent::run() {
  while (busy()) {
    do {
      enter_next();
    } while (start_served());
    const bool waits = std::any_of(queues_.begin(), queues_.end(),
                                   [](const Queue& queue) { return queue.waiting.has_value(); });
    const bool reads = !input_ended_ && terminations_ == 0;
    pollfd sources[] = {{signals_.get(), POLLIN, 0}, {reads ? input_.get() : -1, POLLIN, 0}};
    poll(sources, 2, waits ? kLook_ms : busy() ? -1 : 0);
    signalfd_siginfo info;
    while (read(signals_.get(), &info, sizeof info) == sizeof info) {
      obey(static_cast<int>(info.ssi_signo));
    }
    if (reads && sources[1].revents != 0) read_input();
  }
  summarise();
  return jobs_ == done_ && refused_ == 0;
}

void Agent::summarise() const {
  const int not_started = jobs_ - done_ - failed_;
  complain(fmt::format("{} done, {} failed, {} not started, {} not understood", done_, failed_,
                       not_started, refused_));
  if (!options_.json) return;
  print(nlohmann::ordered_json{{"done", done_},
                               {"failed", failed_},
                               {"not_started", not_started},
                               {"not_understood", refused_}}
            .dump(2) +
        "\n");
}

}  // namespace

void add_queue_command(CLI::App& app, int& status) {
  const auto options = std::make_shared<QueueOptions>();
  CLI::App* const command =
      app.add_subcommand("queue", "Run commands from named queues, as many at once as fit");
  command
      ->add_option("--queue", options->queues,
                   "NAME=SHARE: 0.125 to 1 of a GPU for each command, or 2 or 4 whole ones")
      ->required()
      ->allow_extra_args(false);
  command->add_option("FILE", options->file,
                      "The commands; standard input when it is - or missing");
  command->add_option("--gpus", options->gpus,
                      "Only these: 0,2-3, all, GPU-<uuid>, AMD-<gpu_id> or a bus id");
  command->add_option("--priority", options->priority,
                      "Of the last queue, beside other launches that wait; each one before it has "
                      "one more");
  command->add_flag("-0,--null", options->null_separated, "Commands end with NUL, not with a line");
  command->add_flag("--json", options->json, "A summary for programs on standard output");
  command->footer(kExamples);
  command->callback([options, &status] {
    bool good = false;
    status = guarded([&] { good = Agent(*options).run(); });
    if (!good) status = 1;
  });
}

}  // namespace fracgpu::tools
