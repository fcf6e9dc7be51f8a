// The most memory that the recorded processes need on each GPU, computed during the recording.
// These are the same sums as in the report (tools/report/analysis.h), without the report's other
// results.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "tools/recording/event.h"
#include "tools/report/pool_chunks.h"

namespace fracgpu::tools {

class NeededMeter {
 public:
  void apply(const recording::Event& event);

  // Bytes, by the device's number in the recording.
  const std::map<uint32_t, uint64_t>& peaks() const { return peaks_; }

 private:
  struct Pool {
    uint64_t reserved = 0;
    report::PoolChunks chunks;
    // The memory that the pool could not give back.
    uint64_t needed() const { return chunks.in_use() < reserved ? chunks.in_use() : reserved; }
  };
  // The use of one process on one device.
  struct Use {
    uint64_t needed = 0;
    std::map<std::pair<recording::MemoryKind, uint64_t>, uint64_t> levels;  // by kind and owner
    std::map<uint64_t, Pool> pools;
  };

  template <typename Change>
  void change_pool(const recording::Event& event, Change change);
  void add(uint32_t device, Use& use, uint64_t by);

  std::map<std::pair<uint32_t, uint32_t>, Use> uses_;  // by process and device
  std::map<uint32_t, uint64_t> now_, peaks_;           // by device
};

}  // namespace fracgpu::tools
