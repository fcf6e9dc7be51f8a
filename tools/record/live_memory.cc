// See live_memory.h.
#include "tools/record/live_memory.h"

#include <algorithm>
#include <utility>

namespace fracgpu::tools {
namespace {

// The chunk size of both vendors; shim/charge/linear.h and shim/tracking/block_cache.h name the
// sources.
constexpr uint64_t kChunk = 2u << 20;

}  // namespace

std::optional<Live> LiveMemory::add(uint64_t key, Live live) {
  live.number = ++added_;
  const auto [place, is_new] = live_.try_emplace(key, live);
  if (is_new) return {};
  return std::exchange(place->second, live);
}

std::vector<std::pair<uint64_t, Live>> LiveMemory::take_last(uint32_t device, uint64_t bytes) {
  std::vector<std::pair<uint64_t, Live>> all, taken;
  for (const auto& each : live_) {
    if (each.second.device == device && each.second.taken > 0) all.push_back(each);
  }
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a.second.number > b.second.number; });
  for (const auto& each : all) {
    if (bytes == 0) break;
    bytes -= std::min(bytes, each.second.taken);
    live_.erase(each.first);
    taken.push_back(each);
  }
  return taken;
}

std::optional<Live> LiveMemory::take(uint64_t key) {
  const auto found = live_.find(key);
  if (found == live_.end()) return {};
  const Live live = found->second;
  live_.erase(found);
  return live;
}

const Live* LiveMemory::find(uint64_t key) const {
  const auto found = live_.find(key);
  return found != live_.end() ? &found->second : nullptr;
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

}  // namespace fracgpu::tools
