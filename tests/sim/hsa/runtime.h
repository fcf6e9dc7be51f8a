// The state of the simulated HSA runtime within one process: agents, their pools, and who may call.
// Exported functions are grouped by family, a file each; each that returns a status begins with
// SIM_CALL, which runs ordered failures and refuses calls before hsa_init and in forked children.
// Memory, queues' lives and executables are behind one lock per process; signals and the packets of
// queues are not.
//
// A process's first hsa_init takes every visible device's context_bytes, because there the real one
// opens the kernel driver and acquires an address space on each device; the last hsa_shut_down
// gives back all that the process has.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "sim/hsa/abi.h"
#include "sim/hsa/fragment.h"
#include "sim/node/account.h"
#include "sim/node/inject.h"

namespace sim {

struct Agent;

// A memory pool of an agent, and a region of the older interface at once.
struct Pool {
  enum class Kind { kFine, kKernarg, kCoarse, kGroup };
  Agent* agent = nullptr;
  Kind kind = Kind::kFine;
  FragmentHeap heap;
};

struct Agent {
  int device = -1;  // of the node; < 0: the processor
  uint32_t index = 0;
  uint32_t node = 0;  // as libhsakmt numbers those of KFD that this process may use
  std::vector<std::unique_ptr<Pool>> pools;
  bool gpu() const { return device >= 0; }
};

class Runtime {
 public:
  static Runtime& get();

  hsa_status_t init();
  hsa_status_t shut_down();

  std::mutex& lock() { return mutex_; }
  Account& account() { return *account_; }
  const DeviceRow& row(const Agent& agent) { return account_->node().device(agent.device); }
  const std::vector<std::unique_ptr<Agent>>& agents() const { return agents_; }
  // Null for a handle that is none of ours.
  Agent* find(hsa_agent_t handle) const;
  Pool* find_pool(uint64_t handle) const;
  Agent* processor() const { return agents_.front().get(); }
  // Memory that the runtime takes for itself, such as a queue's; false when the device is full.
  bool take_overhead(const Agent& agent, uint64_t bytes);
  void return_overhead(const Agent& agent, uint64_t bytes);

 private:
  Runtime() = default;
  void choose_agents();
  void add_agent(int device);
  void drop_contexts(size_t count);

  std::mutex mutex_;
  std::unique_ptr<Account> account_;
  std::vector<std::unique_ptr<Agent>> agents_;  // the processor first; chosen once
  uint32_t references_ = 0;
};

inline hsa_agent_t handle(const Agent& agent) {
  return {reinterpret_cast<uint64_t>(&agent)};
}

// One byte of a page that forked children see as zero: 1 between hsa_init and hsa_shut_down.
extern const volatile unsigned char* initialised;

inline hsa_status_t enter(const char* function) {
  if (const int result = ordered(function)) return static_cast<hsa_status_t>(result);
  return *initialised != 0 ? HSA_STATUS_SUCCESS : HSA_STATUS_ERROR_NOT_INITIALIZED;
}

// FRACGPU_SIM_ROCR=5.6 makes it a runtime that does not tell KFD's number of a device, and reserves
// no scratch memory.
bool is_before_5_7();

// Says on stderr, if FRACGPU_SIM_VERBOSE is set, what was asked and has no answer here.
void unanswered(const char* function, uint64_t attribute);

using Guard = std::lock_guard<std::mutex>;

}  // namespace sim

#define SIM_CALL(name)                                                    \
  do {                                                                    \
    if (const hsa_status_t refused = ::sim::enter(#name)) return refused; \
  } while (false)
