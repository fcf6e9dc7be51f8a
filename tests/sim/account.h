// One process's account with the physical node: what a driver library uses to take and give back
// memory. The caller serialises the calls of one process; processes meet only in atomics, and in a
// file lock when somebody has died. Each update is bracketed by the row's busy flag, so that a kill
// in the middle is recognised later and the totals are counted again.
#ifndef FRACGPU_TESTS_SIM_ACCOUNT_H_
#define FRACGPU_TESTS_SIM_ACCOUNT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "node.h"

namespace sim {

// kModule: what a context takes later on; counted with it, but not as one more context.
enum class Kind { kAllocation, kContext, kModule };

class Account {
 public:
  // Registers this process in the node named by the environment. Null with a reason when that
  // cannot be done.
  static std::unique_ptr<Account> open(std::string* error);

  Node& node() { return *node_; }
  uint64_t serial() const { return row_->serial; }
  int pid() const { return row_->pid; }

  // Takes physical memory, or nothing and false when the device is full.
  bool reserve(int dev, uint64_t bytes, Kind kind);
  void release(int dev, uint64_t bytes, Kind kind);
  uint64_t total(int dev) const { return node_->file_->device[dev].total; }
  uint64_t context_cost(int dev) const { return node_->file_->device[dev].context_bytes; }
  uint64_t free_bytes(int dev);
  // Is the process behind a row's serial still there?
  bool alive(uint64_t serial);

 private:
  explicit Account(std::unique_ptr<Node> node) : node_(std::move(node)) {}
  bool enroll(std::string* error);
  void begin();
  void end() { row_->busy.store(0, std::memory_order_release); }
  bool try_reserve(int dev, uint64_t bytes, Kind kind);
  void raise_mark(int dev);

  std::unique_ptr<Node> node_;
  ProcessRow* row_ = nullptr;
  TenantRow* tenant_ = nullptr;
  int row_index_ = -1;
  int tenant_index_ = -1;
};

}  // namespace sim

#endif  // FRACGPU_TESTS_SIM_ACCOUNT_H_
