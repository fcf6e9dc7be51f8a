// Collects everything that `fracgpu metrics` reports, anew each time.
#pragma once

#include <cstdint>
#include <string>

namespace fracgpu::tools {

class Collector {
 public:
  explicit Collector(bool with_processes) : with_processes_(with_processes) {}

  // All metrics in Prometheus' text format. METRICS.md has the table.
  std::string collect();

 private:
  bool with_processes_;
  uint64_t ask_driver_again_ms_ = 0;  // a driver that failed is left alone for a while
};

}  // namespace fracgpu::tools
