// Running graphs: every launch is finished when it returns, so what its free nodes free is free at
// once, and what they leave stays until the program frees it.
#include "cuda_graph.h"

#include "cuda_driver.h"

namespace sim {

std::unique_ptr<Graph> Graph::clone() const {
  auto copy = std::make_unique<Graph>();
  for (const auto& node : nodes) {
    auto twin = std::make_unique<GraphNode>();
    twin->type = node->type;
    twin->alloc = node->alloc;
    twin->freed = node->freed;
    if (node->child != nullptr) twin->child = node->child->clone();
    copy->nodes.push_back(std::move(twin));
  }
  return copy;
}

void GraphExec::read(const Graph& graph) {
  for (const auto& node : graph.nodes) {
    if (node->type == GraphNode::kAlloc) {
      steps.push_back({node->alloc.dptr, node->alloc.bytesize, node->alloc.poolProps.location.id});
    } else if (node->type == GraphNode::kFree) {
      steps.push_back({node->freed, 0, 0});
    } else if (node->child != nullptr) {
      read(*node->child);
    }
  }
}

Pool* GraphMemory::reserve_of(int ordinal) {
  Pool*& pool = reserves_[ordinal];
  if (pool == nullptr) {
    Driver& driver = Driver::get();
    CUmemPoolProps props = {};
    props.location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
    pool = driver.pools.create(props, driver.physical(ordinal));
    pool->threshold = ~uint64_t{0};
  }
  return pool;
}

CUresult GraphMemory::launch(GraphExec* exec, bool only_upload) {
  Pools& pools = Driver::get().pools;
  std::map<int, uint64_t> needs;
  for (const GraphExec::Step& step : exec->steps) {
    if (step.bytes == 0) continue;
    needs[step.ordinal] += (step.bytes + kPage - 1) / kPage * kPage;
    if (live_.count(step.address) == 0) continue;
    if (!exec->frees_itself) return CUDA_ERROR_INVALID_VALUE;
    free(step.address);
  }
  std::map<int, std::shared_ptr<Block>> blocks;
  for (const auto& [ordinal, bytes] : needs) {
    auto block = std::make_shared<Block>();
    if (pools.allocate(reserve_of(ordinal), bytes, 1, &block->part) != CUDA_SUCCESS) {
      for (const auto& [other, taken] : blocks) pools.free(taken->part, 0);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    block->live = 1;  // this function's own
    blocks[ordinal] = block;
  }
  for (const GraphExec::Step& step : exec->steps) {
    if (only_upload) break;
    if (step.bytes == 0) {
      free(step.address);
    } else {
      live_[step.address] = blocks[step.ordinal];
      ++blocks[step.ordinal]->live;
    }
  }
  for (const auto& [ordinal, block] : blocks) {
    if (--block->live == 0) pools.free(block->part, 0);
  }
  return CUDA_SUCCESS;
}

bool GraphMemory::free(uint64_t address) {
  const auto found = live_.find(address);
  if (found == live_.end()) return false;
  const std::shared_ptr<Block> block = found->second;
  live_.erase(found);
  if (--block->live == 0) Driver::get().pools.free(block->part, 0);
  return true;
}

void GraphMemory::trim(int ordinal) {
  Driver::get().pools.trim(reserve_of(ordinal), 0);
}

}  // namespace sim
