// The memory of graphs in one process: allocations with fixed addresses, and one reserve of
// physical memory per device that backs those in use. A reserve is mapped page by page, so nothing
// in it can be too scattered; it grows by what a launch needs beyond its free pages, and shrinks
// only when it is trimmed: as pools do, it outlives the device's primary context. All of it wants
// the driver's lock held.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "sim/cuda/graph_abi.h"
#include "sim/cuda/space.h"
#include "sim/cuda/stream_table.h"
#include "sim/node/node_layout.h"

namespace sim {

struct Found;

// Lives as long as a node, an execution or its own memory needs it, and its address with it.
struct GraphAllocation {
  ~GraphAllocation();

  CUDA_MEM_ALLOC_NODE_PARAMS params = {};
  std::vector<CUmemAccessDesc> access;
  int device = 0;  // of the node
  uint64_t address = 0;
  uint64_t pages = 0;
  // Graphs by their ids, because it can outlive them.
  uint64_t owner = 0;
  uint64_t freed_by = 0;  // the one that has a free node for it
  bool live = false;

  uint64_t bytes() const { return pages * kPage; }
};

class GraphMemory {
 public:
  struct Reserve {
    uint64_t reserved = 0, reserved_high = 0;
    uint64_t used = 0, used_high = 0;
  };

  std::shared_ptr<GraphAllocation> create(const CUDA_MEM_ALLOC_NODE_PARAMS& params, int device);
  void forget(const GraphAllocation& allocation);

  bool contains(uint64_t address) const { return space_.contains(address); }
  std::shared_ptr<GraphAllocation> starting_at(uint64_t address) const;
  bool find(uint64_t address, Found* found) const;

  Reserve& reserve(int device) { return reserves_[device]; }
  // Memory for a graph that is to run in the stream, of so many bytes at once; false: there is
  // none. It has that to itself until its work there is done, but for what runs in the same stream:
  // that never runs at once, and "can and should use the same physical memory" (CUDA programming
  // guide).
  bool prepare(int device, uint64_t bytes, uint64_t stream);
  // It runs until then, and leaves behind so many of its bytes.
  void runs(int device, uint64_t bytes, uint64_t left, const CUstream_st& stream);
  void begin(const std::shared_ptr<GraphAllocation>& allocation);
  void end(GraphAllocation* allocation);
  CUresult free(uint64_t address);
  void trim(int device);

 private:
  // Of graphs under way, but in this stream (0: in none).
  uint64_t in_use(int device, uint64_t but);

  struct Run {
    uint64_t bytes = 0;
    uint64_t until = 0;
  };
  std::map<std::pair<int, uint64_t>, Run> runs_;  // by device and stream
  AddressSpace space_{0x430000000000ULL, 0x4b0000000000ULL};
  std::map<uint64_t, std::weak_ptr<GraphAllocation>> all_;
  std::map<uint64_t, std::shared_ptr<GraphAllocation>> live_;
  std::map<int, Reserve> reserves_;
};

}  // namespace sim
