// Counts the calls that a program makes of the simulated libraries, by name, in a file that tests
// may read while it runs. FRACGPU_SIM_CALLS names the file; a program that gets none counts
// nothing. Several processes may count in one file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "sim/node/node_layout.h"

namespace sim {

inline constexpr const char* kCallsVariable = "FRACGPU_SIM_CALLS";

class CallCounts {
 public:
  // Maps the file, which is made if there is none. Null when that cannot be done.
  static std::unique_ptr<CallCounts> open(const std::string& path);
  ~CallCounts();
  CallCounts(const CallCounts&) = delete;
  CallCounts& operator=(const CallCounts&) = delete;

  void add(std::string_view function);

  // Every name that was called, in the order of the first calls, and how often.
  void visit(const std::function<void(std::string_view, uint64_t)>& visit) const;

  // How often functions were called whose names begin so.
  uint64_t beginning_with(std::string_view prefix) const;
  uint64_t of_driver() const { return beginning_with("cu"); }
  uint64_t of_nvml() const { return beginning_with("nvml"); }
  // The process lists of NVML, of every generation.
  uint64_t of_process_lists() const;

 private:
  static constexpr size_t kRows = 2048, kNameBytes = 56;
  struct Row {
    std::atomic<uint32_t> state;  // 0: free, 1: its name is being written, 2: in use
    char name[kNameBytes];
    Counter count;
  };

  explicit CallCounts(Row* rows) : rows_(rows) {}
  Row* const rows_;
};

}  // namespace sim
