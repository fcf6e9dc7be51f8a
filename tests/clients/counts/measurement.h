// Repeats steps, and counts by FRACGPU_SIM_CALLS which functions of the driver and of NVML each has
// called.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "hooks/cuda/abi.h"

namespace client {

using namespace fracgpu::cuda;

inline constexpr size_t kSmall = 4u << 10, kPage = 2u << 20, kLarge = 64u << 20;

[[noreturn]] void give_up(const char* what, int result);

// The driver's function of this name, or an end of the program.
void* function_of(const char* name);

// Calls it, and ends the program where it fails. The arguments must have exactly the types of the
// driver's prototype.
template <typename... Arguments>
void call(const char* name, Arguments... arguments) {
  const int result = reinterpret_cast<int (*)(Arguments...)>(function_of(name))(arguments...);
  if (result != 0) give_up(name, result);
}

// By function: how often it was called.
using Counts = std::map<std::string, uint64_t>;
// By the measured call.
struct Measured {
  int repetitions = 0;
  Counts counts;  // of all of them together
};
using AllCounts = std::map<std::string, Measured>;

// Repeats all steps together; each that has a name is counted under it.
class Measurement {
 public:
  using Step = std::function<void()>;

  // Enough of both that what is amortised shows as a fraction.
  static constexpr int kWarm = 100, kMeasured = 100;

  Measurement& step(const std::string& name, Step step);
  Measurement& unmeasured(Step step) { return this->step("", std::move(step)); }
  void run(AllCounts& all) const;

 private:
  std::vector<std::pair<std::string, Step>> steps_;
};

// What all measurements use.
struct Shared {
  CUcontext context = nullptr;  // the primary one, which is current
  CUstream stream = nullptr;
  void* function = nullptr;  // a kernel
};
extern Shared shared;

// Another process of the same tenant, and what it exports.
class Exporter {
 public:
  // Before the driver is initialised here, because no process may use it after a fork.
  Exporter();
  ~Exporter();  // ends the process
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;

  const CUipcMemHandle& memory() const { return memory_; }

 private:
  int pid_ = -1;
  int end_ = -1;  // closed when the process is to end
  CUipcMemHandle memory_ = {};
};

void measure_linear(AllCounts& all);
void measure_vmm(AllCounts& all);
void measure_ipc(AllCounts& all, const Exporter& exporter);
void measure_arrays(AllCounts& all);
void measure_pools(AllCounts& all);
void measure_streams(AllCounts& all);
void measure_graphs(AllCounts& all);
void measure_code(AllCounts& all);
void measure_contexts(AllCounts& all);

}  // namespace client
