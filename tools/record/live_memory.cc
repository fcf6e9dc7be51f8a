// See live_memory.h.
#include "tools/record/live_memory.h"

#include <utility>

namespace fracgpu::tools {
namespace {

// Both vendors' chunks; shim/charge/linear.h and shim/tracking/block_cache.h say by what source.
constexpr uint64_t kChunk = 2u << 20;

}  // namespace

std::optional<Live> LiveMemory::add(uint64_t key, const Live& live) {
  const auto [place, is_new] = live_.try_emplace(key, live);
  if (is_new) return {};
  return std::exchange(place->second, live);
}

std::optional<Live> LiveMemory::take(uint64_t key) {
  const auto found = live_.find(key);
  if (found == live_.end()) return {};
  const Live live = found->second;
  live_.erase(found);
  return live;
}

std::vector<std::pair<uint64_t, Live>> LiveMemory::take_all_of(uint64_t owner) {
  std::vector<std::pair<uint64_t, Live>> taken;
  std::erase_if(live_, [&](const auto& each) {
    const bool is_its = each.second.owner == owner &&
                        each.second.kind != recording::MemoryKind::pool &&
                        each.second.kind != recording::MemoryKind::physical;
    if (is_its) taken.push_back(each);
    return is_its;
  });
  return taken;
}

uint64_t LiveMemory::enter_chunk(uint32_t device, uint64_t address, uint64_t users) {
  Chunks& chunks = chunks_[device];
  chunks.users[address / kChunk] += users;
  return chunks.users.size() * kChunk;
}

uint64_t LiveMemory::leave_chunk(uint32_t device, uint64_t address) {
  Chunks& chunks = chunks_[device];
  const auto found = chunks.users.find(address / kChunk);
  if (found != chunks.users.end() && --found->second == 0) chunks.users.erase(found);
  return chunks.users.size() * kChunk;
}

std::optional<uint32_t> LiveMemory::chunk_at(uint64_t address) const {
  for (const auto& [device, chunks] : chunks_) {
    if (chunks.users.contains(address / kChunk)) return device;
  }
  return {};
}

void LiveHandles::create(uint64_t handle, const Live& live) {
  memory_[++last_] = {live};
  by_handle_[handle] = last_;
}

void LiveHandles::reference(uint64_t handle) {
  const auto found = by_handle_.find(handle);
  if (found != by_handle_.end()) ++memory_[found->second].references;
}

void LiveHandles::map(uint64_t address, uint64_t bytes, uint64_t handle) {
  const auto found = by_handle_.find(handle);
  if (found == by_handle_.end() || bytes == 0) return;
  if (!mappings_.try_emplace(address, Mapping{bytes, found->second}).second) return;
  ++memory_[found->second].mappings;
}

std::optional<Live> LiveHandles::gone(uint64_t memory) {
  const Memory& it = memory_[memory];
  if (it.references > 0 || it.mappings > 0) return {};
  const Live live = it.live;
  memory_.erase(memory);
  return live;
}

std::optional<Live> LiveHandles::drop(uint64_t handle) {
  const auto found = by_handle_.find(handle);
  if (found == by_handle_.end()) return {};
  const uint64_t memory = found->second;
  if (--memory_[memory].references > 0) return {};
  by_handle_.erase(found);
  return gone(memory);
}

std::vector<Live> LiveHandles::unmap(uint64_t address, uint64_t bytes) {
  std::vector<Live> all;
  for (auto at = mappings_.lower_bound(address);
       at != mappings_.end() && at->first - address < bytes;) {
    const uint64_t memory = at->second.memory;
    at = mappings_.erase(at);
    --memory_[memory].mappings;
    if (const auto live = gone(memory)) all.push_back(*live);
  }
  return all;
}

}  // namespace fracgpu::tools
