// `fracgpu queue`; see queue.h. queue_agent.h decides what to start, and when.
#include "tools/commands/queue.h"

#include <fmt/core.h>

#include <memory>
#include <stdexcept>

#include "tools/cli/arguments.h"
#include "tools/cli/exit_status.h"
#include "tools/cli/output.h"
#include "tools/launch/outer_cap.h"
#include "tools/launch/partition_mode.h"
#include "tools/launch/queue_agent.h"

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

struct QueueOptions {
  std::vector<std::string> queues;
  std::string gpus, mig, partition, file = "-";
  int priority = 0;
  bool null_separated = false, json = false;
};

// "half=0.5" is a share, "dual=2" a number of whole GPUs.
Queue queue_of(const std::string& text, const QueueOptions& options, const std::vector<Gpu>& all) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  if (equals == text.npos || name.empty() || name.find_first_of(": \t") != name.npos) {
    throw std::runtime_error(
        fmt::format("{} is no queue; accepted: NAME=SHARE, as in quarter=0.25, half=0.5, dual=2",
                    fracgpu::quoted(text).view()));
  }
  const std::string size = text.substr(equals + 1);
  RequestText request{.memory = {},
                      .fraction = {},
                      .count = {},
                      .gpus = options.gpus,
                      .mig = options.mig,
                      .partition = options.partition};
  // "1" is also a share.
  const bool whole = size != "1" && !size.empty() && size.size() < 4 &&
                     size.find_first_not_of("0123456789") == size.npos;
  std::string& to = whole                          ? request.count
                    : size.find("g.") != size.npos ? request.mig
                                                   : request.fraction;
  to = size.empty() ? "?" : size;
  return {name, Request(request, all), 0};
}

// The queues of the command line. Refuses duplicate names.
std::vector<Queue> queues_of(const QueueOptions& options, const std::vector<Gpu>& gpus) {
  std::vector<Queue> queues;
  for (const std::string& text : options.queues) {
    Queue queue = queue_of(text, options, gpus);
    for (const Queue& other : queues) {
      if (other.name == queue.name) {
        throw std::runtime_error(
            fmt::format("queue {} is given twice", fracgpu::quoted(queue.name).view()));
      }
    }
    queues.push_back(std::move(queue));
  }
  for (size_t i = 0; i < queues.size(); ++i) {
    queues[i].priority = options.priority + static_cast<int>(queues.size() - 1 - i);
  }
  return queues;
}

std::vector<std::string> names_of(const std::vector<Queue>& queues) {
  std::vector<std::string> names;
  names.reserve(queues.size());
  for (const Queue& queue : queues) names.push_back(queue.name);
  return names;
}

// Returns whether all commands succeeded.
bool run_queues(const QueueOptions& options) {
  const std::vector<Gpu> gpus = list_gpus();
  std::vector<Queue> queues = queues_of(options, gpus);
  if (const auto outer = find_outer_cap(gpus)) {
    throw std::runtime_error(
        fmt::format("this is inside tenant {}, whose cap is that of all that is started there, so "
                    "that no command could have a share of its own; start the queue outside",
                    outer->tenant));
  }
  JobSource source(options.file, options.null_separated, names_of(queues));
  return QueueAgent(std::move(queues), gpus, std::move(source), options.json).run();
}

}  // namespace

void add_queue_command(Command program) {
  const auto options = std::make_shared<QueueOptions>();
  Command command =
      program.add_subcommand("queue", "Run commands from named queues, as many at once as fit");
  command
      .add_option("--queue", options->queues,
                  "NAME=SHARE: 0.125 to 1 of a GPU for each command, 2 or more whole ones, or a "
                  "MIG profile")
      .required()
      .takes_one_value();
  command.add_option("FILE", options->file, "The commands; standard input when it is - or missing");
  command.add_option("--gpus", options->gpus,
                     "Only these: 0,2-3, all, GPU-<uuid>, AMD-<gpu_id>, a bus id, 0:1, MIG-<uuid>");
  command.add_option("--mig", options->mig,
                     "Use of MIG: auto, never, only, existing instances, or a profile: 2g.20gb");
  command.add_option("--partition", options->partition, kPartitionHelp);
  command
      .add_option("--priority", options->priority,
                  "Of the last queue, beside other launches that wait; each one before it has "
                  "one more")
      .range(-kHighestPriority, kHighestPriority);
  command.add_flag("-0,--null", options->null_separated, "Commands end with NUL, not with a line");
  command.add_flag("--json", options->json, "A summary for programs on standard output");
  command.set_footer(kExamples);
  command.set_body([options] { return run_queues(*options) ? kOk : kFailed; });
}

}  // namespace fracgpu::tools
