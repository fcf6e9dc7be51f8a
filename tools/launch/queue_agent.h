// The agent of `fracgpu queue`. The next command of each queue waits in the claim table. The first
// queue has the highest priority. The table decides, as for all other launches. A child runs each
// served command as `fracgpu run` would, so that the command keeps its share even if the agent
// ends.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/claims/claim_table.h"
#include "tools/cli/descriptor.h"
#include "tools/launch/job_source.h"
#include "tools/launch/request.h"

namespace fracgpu::tools {

// The request of one queue's commands, and the commands that have not been started.
struct Queue {
  std::string name;
  Request request;
  int priority;
  std::deque<Job> pending{};
  struct Waiting {
    Job job;
    std::string tenant;
    Claim claim;
  };
  std::optional<Waiting> waiting{};
};

class QueueAgent {
 public:
  QueueAgent(std::vector<Queue> queues, const std::vector<Gpu>& gpus, JobSource source, bool json);
  // Runs until all commands are done. Returns whether all succeeded.
  bool run();

 private:
  using Clock = std::chrono::steady_clock;
  struct Running {
    Job job;
    Clock::time_point start;
  };

  bool busy() const;
  void take_jobs();
  void enter_next();
  bool start_served();
  [[noreturn]] void be_member(Queue& queue, Queue::Waiting waiting,
                              const std::vector<Share>& shares);
  void reap();
  void obey(int signal);
  void tell(const Job& job, const std::string& what) const;
  void summarise() const;

  std::vector<Queue> queues_;
  const std::vector<Gpu> gpus_;
  JobSource source_;
  const bool json_;
  ClaimTable table_;
  Descriptor signals_;
  sigset_t mask_before_;
  int done_ = 0, failed_ = 0;
  int terminations_ = 0;  // signals so far
  std::map<pid_t, Running> running_;
};

}  // namespace fracgpu::tools
