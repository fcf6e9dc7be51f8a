// See pool_chunks.h.
#include "tools/report/pool_chunks.h"

#include <algorithm>
#include <iterator>

namespace fracgpu::tools::report {
namespace {

constexpr uint64_t kPage = 2u << 20;
// So many empty chunks are remembered: programs have tens.
constexpr size_t kMost = 4096;

uint64_t rounded_up(uint64_t bytes) {
  return (std::max<uint64_t>(bytes, 1) + kPage - 1) / kPage * kPage;
}

}  // namespace

PoolChunks::Chunks::iterator PoolChunks::chunk_at(uint64_t address) {
  const auto behind = chunks_.upper_bound(address);
  if (behind == chunks_.begin()) return chunks_.end();
  const auto found = std::prev(behind);
  return address - found->first < found->second.bytes ? found : chunks_.end();
}

// Drops the chunks in this range: the driver has reused their addresses.
void PoolChunks::make_room(uint64_t begin, uint64_t end) {
  auto at = chunks_.lower_bound(begin);
  if (at != chunks_.begin() && std::prev(at)->first + std::prev(at)->second.bytes > begin) --at;
  while (at != chunks_.end() && at->first < end) {
    if (at->second.users > 0) in_use_ -= at->second.bytes;
    at = chunks_.erase(at);
  }
  if (chunks_.size() < kMost) return;
  std::erase_if(chunks_, [](const auto& each) { return each.second.users == 0; });
}

void PoolChunks::allocate(uint64_t address, uint64_t bytes) {
  auto chunk = chunk_at(address);
  waiting_ = 0;
  if (chunk == chunks_.end()) {
    const uint64_t begin = address / kPage * kPage, size = rounded_up(address - begin + bytes);
    if (begin + size < begin) return;
    make_room(begin, begin + size);
    chunk = chunks_.emplace(begin, Chunk{size, 0}).first;
    waiting_ = begin;
  }
  if (chunk->second.users++ == 0) in_use_ += chunk->second.bytes;
}

void PoolChunks::release(uint64_t address) {
  const auto chunk = chunk_at(address);
  if (chunk == chunks_.end() || chunk->second.users == 0) return;
  if (--chunk->second.users == 0) in_use_ -= chunk->second.bytes;
}

void PoolChunks::grow(uint64_t bytes) {
  const auto chunk = waiting_ != 0 ? chunks_.find(waiting_) : chunks_.end();
  waiting_ = 0;
  if (chunk == chunks_.end() || bytes <= chunk->second.bytes) return;
  // Limited by the next chunk: this one cannot overlap it.
  const auto next = std::next(chunk);
  const uint64_t most = next == chunks_.end() ? bytes : std::min(bytes, next->first - chunk->first);
  if (chunk->second.users > 0) in_use_ += most - chunk->second.bytes;
  chunk->second.bytes = most;
}

}  // namespace fracgpu::tools::report
