// Processes that use a GPU and that a recorder cannot record: those of another user, whom its rings
// are not for, and those with a /dev/shm of their own, in which there are no rings.
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
  // `told(name, why)` is called once for each.
  using Told = std::function<void(const std::string& name, const std::string& why)>;
  Outsiders(std::string tenant, uid_t recorded_user, Told told);

  // Among the tenant's processes in the ledger that the recorder sees; for the recorder to call
  // often, since processes may be short.
  void look_in(const layout::Ledger& ledger);
  // Among all processes of the machine, whose /dev/shm may be another one. A look at each takes
  // long together: a few of them at a time, and all once a second.
  void look_elsewhere();

 private:
  void look_at_root_of(const std::string& process);
  void tell(const layout::Slot& slot, const std::string& why);

  const std::string tenant_;
  const uid_t user_;
  const Told told_;
  std::set<std::tuple<uint32_t, uint64_t, uint64_t>> known_;  // PID, its namespace, start time
  std::filesystem::directory_iterator next_{};                // in /proc
  uint64_t began_ms_ = 0;                                     // to go through it
  std::set<std::pair<dev_t, ino_t>> seen_;                    // ledgers, since then
};

}  // namespace fracgpu::tools
