// The reserves of graph memory. Graphs are finished when their launch returns, so what one frees is
// free for the next one at once, in whatever stream; unless launches take time (stream_table.h).
#include "sim/cuda/graph_memory.h"

#include <algorithm>

#include "sim/cuda/driver.h"

namespace sim {
GraphAllocation::~GraphAllocation() {
  Driver::get().graph_memory.forget(*this);
}

std::shared_ptr<GraphAllocation> GraphMemory::create(const CUDA_MEM_ALLOC_NODE_PARAMS& params,
                                                     int device) {
  const uint64_t pages = (params.bytesize + kPage - 1) / kPage;
  const uint64_t address = space_.take(pages, nullptr);
  if (address == 0) return nullptr;
  auto allocation = std::make_shared<GraphAllocation>();
  allocation->device = device;
  allocation->address = address;
  allocation->pages = pages;
  if (params.accessDescs != nullptr)
    allocation->access.assign(params.accessDescs, params.accessDescs + params.accessDescCount);
  allocation->params = params;
  allocation->params.accessDescs = allocation->access.data();
  allocation->params.accessDescCount = allocation->access.size();
  allocation->params.dptr = address;
  all_[address] = allocation;
  return allocation;
}

void GraphMemory::forget(const GraphAllocation& allocation) {
  if (all_.erase(allocation.address) != 0) space_.give_back(allocation.address, allocation.pages);
}

std::shared_ptr<GraphAllocation> GraphMemory::starting_at(uint64_t address) const {
  const auto found = all_.find(address);
  return found != all_.end() ? found->second.lock() : nullptr;
}

bool GraphMemory::find(uint64_t address, Found* found) const {
  auto at = live_.upper_bound(address);
  if (at == live_.begin()) return false;
  const GraphAllocation& allocation = *(--at)->second;
  found->ordinal = allocation.params.poolProps.location.id;
  found->base = allocation.address;
  found->bytes = allocation.params.bytesize;
  found->id = allocation.address;
  found->accessible = current() != nullptr && current()->ordinal == found->ordinal;
  for (const CUmemAccessDesc& access : allocation.access) {
    if (current() != nullptr && access.location.id == current()->ordinal)
      found->accessible = found->accessible || access.flags != 0;
  }
  return address < found->base + found->bytes;
}

uint64_t GraphMemory::in_use(int device, uint64_t but) {
  const uint64_t now = runs_.empty() ? 0 : now_ns();
  uint64_t bytes = 0;
  for (auto at = runs_.begin(); at != runs_.end();) {
    const auto& [where, run] = *at;
    if (where.first == device && where.second != but && run.until > now) bytes += run.bytes;
    at = run.until <= now ? runs_.erase(at) : std::next(at);
  }
  return bytes;
}

void GraphMemory::runs(int device, uint64_t bytes, uint64_t left, const CUstream_st& stream) {
  if (!kernels_take_time()) return;
  Run& run = runs_[{device, stream.id}];
  const bool goes_on = run.until > now_ns();
  run.bytes = std::max(goes_on ? run.bytes : 0, bytes - left);
  run.until = stream.busy_until;
}

bool GraphMemory::prepare(int device, uint64_t bytes, uint64_t stream) {
  Reserve& reserve = reserves_[device];
  const uint64_t taken = reserve.used + in_use(device, stream);
  const uint64_t free = reserve.reserved - std::min(taken, reserve.reserved);
  if (bytes <= free) return true;
  Account& account = Driver::get().account();
  uint64_t growth = std::max(bytes - free, kPoolGrowth);
  if (!account.reserve(device, growth, Kind::kAllocation)) {
    growth = bytes - free;
    if (growth >= kPoolGrowth || !account.reserve(device, growth, Kind::kAllocation)) return false;
  }
  reserve.reserved += growth;
  reserve.reserved_high = std::max(reserve.reserved_high, reserve.reserved);
  return true;
}

void GraphMemory::begin(const std::shared_ptr<GraphAllocation>& allocation) {
  Reserve& reserve = reserves_[allocation->device];
  allocation->live = true;
  live_[allocation->address] = allocation;
  reserve.used += allocation->bytes();
  reserve.used_high = std::max(reserve.used_high, reserve.used);
}

void GraphMemory::end(GraphAllocation* allocation) {
  allocation->live = false;
  reserves_[allocation->device].used -= allocation->bytes();
  live_.erase(allocation->address);  // which may be the last to hold it
}

// One that its own graph frees cannot be freed from outside.
CUresult GraphMemory::free(uint64_t address) {
  const auto found = live_.find(address);
  if (found == live_.end() || found->second->freed_by == found->second->owner)
    return CUDA_ERROR_INVALID_VALUE;
  end(found->second.get());
  return CUDA_SUCCESS;
}

void GraphMemory::trim(int device) {
  // "Blocks which are not in use by a graph that is either currently executing or scheduled to
  // execute are freed" (CUDA driver API, cuDeviceGraphMemTrim).
  Reserve& reserve = reserves_[device];
  const uint64_t kept = std::min(reserve.used + in_use(device, 0), reserve.reserved);
  const uint64_t free = reserve.reserved - kept;
  if (free == 0) return;
  reserve.reserved = kept;
  Driver::get().account().release(device, free, Kind::kAllocation);
}

}  // namespace sim
