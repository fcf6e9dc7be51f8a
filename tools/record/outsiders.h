// Processes that use a GPU and that a recorder cannot record: processes of another user, who may
// not write to its rings, and processes with a separate /dev/shm, which has no rings.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "fracgpu/ledger_layout.h"

namespace fracgpu::tools {

class Outsiders {
 public:
  // `told(name, why)` is called once for each process.
  using Told = std::function<void(const std::string& name, const std::string& why)>;
  Outsiders(std::string tenant, uid_t recorded_user, Told told);

  // Checks the tenant's processes in the ledger that the recorder sees. Call it often, because
  // processes may be short-lived.
  void look_in(const layout::Ledger& ledger);
  // Checks all processes of the machine, whose /dev/shm may be a different one. A full check takes
  // long, so each call checks a few processes. A full check starts at most once a second.
  void look_elsewhere();

 private:
  void look_at_root_of(const std::string& process);
  void tell(const layout::Slot& slot, const std::string& why);

  const std::string tenant_;
  const uid_t user_;
  const Told told_;
  std::set<std::tuple<uint32_t, uint64_t, uint64_t>> known_;  // PID, its namespace, start time
  std::filesystem::directory_iterator next_{};                // in /proc
  uint64_t began_ms_ = 0;                                     // the start of the current pass
  std::set<std::pair<dev_t, ino_t>> seen_;                    // ledgers seen in this pass
};

}  // namespace fracgpu::tools
