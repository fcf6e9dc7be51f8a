// The table of the fragment heap. A block knows its used pieces and its holes by address; the holes
// of all blocks that are not retired are found by size.
#include "sim/hsa/fragment.h"

#include <iterator>

namespace sim {

FragmentHeap::Blocks::iterator FragmentHeap::around(uint64_t address) {
  auto at = blocks_.upper_bound(address);
  if (at == blocks_.begin()) return blocks_.end();
  --at;
  return address - at->first < at->second.chunk.bytes ? at : blocks_.end();
}

void FragmentHeap::add_hole(Block& block, uint64_t address, uint64_t bytes) {
  block.holes[address] = bytes;
  if (!block.retired) by_size_.insert({bytes, address});
}

void FragmentHeap::remove_hole(Block& block, uint64_t address) {
  const auto hole = block.holes.find(address);
  by_size_.erase({hole->second, address});
  block.holes.erase(hole);
}

uint64_t FragmentHeap::cut(Block& block, uint64_t hole, uint64_t bytes) {
  const uint64_t room = block.holes[hole];
  remove_hole(block, hole);
  if (room > bytes) add_hole(block, hole + bytes, room - bytes);
  block.used[hole] = bytes;
  return hole;
}

uint64_t FragmentHeap::take(Account& account, int device, uint64_t bytes) {
  const auto best = by_size_.lower_bound({bytes, 0});
  if (best != by_size_.end()) {
    const uint64_t hole = best->second;
    return cut(around(hole)->second, hole, bytes);
  }
  Chunk chunk;
  if (bytes < kHugePage && !cache_.empty()) {
    chunk = cache_.back();
    cache_.pop_back();
  } else if (!take_chunk(account, device, round_up(bytes, kHugePage), &chunk)) {
    return 0;
  }
  Block& block = blocks_[chunk.base];
  block.chunk = chunk;
  in_use_ += chunk.bytes;
  add_hole(block, chunk.base, chunk.bytes);
  const uint64_t address = cut(block, chunk.base, bytes);
  if (bytes > kHugePage) retire_block(account, block);
  return address;
}

bool FragmentHeap::give_back(Account& account, uint64_t address) {
  const auto at = around(address);
  if (at == blocks_.end()) return false;
  Block& block = at->second;
  const auto piece = block.used.find(address);
  if (piece == block.used.end()) return false;
  uint64_t start = address, bytes = piece->second;
  block.used.erase(piece);
  if (block.used.empty()) {
    Chunk chunk = block.chunk;
    if (block.retired) {
      drop_chunk(account, &chunk);
    } else {
      for (const auto& [hole, size] : block.holes) by_size_.erase({size, hole});
      in_use_ -= chunk.bytes;
      cache_.push_back(chunk);
    }
    blocks_.erase(at);
    balance(account);
    return true;
  }
  auto after = block.holes.lower_bound(address);
  if (after != block.holes.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == start) {
      start = before->first;
      bytes += before->second;
      remove_hole(block, start);
    }
  }
  after = block.holes.lower_bound(address);
  if (after != block.holes.end() && after->first == start + bytes) {
    bytes += after->second;
    remove_hole(block, after->first);
  }
  add_hole(block, start, bytes);
  return true;
}

void FragmentHeap::retire_block(Account& account, Block& block) {
  if (block.retired) return;
  for (const auto& [hole, bytes] : block.holes) by_size_.erase({bytes, hole});
  block.retired = true;
  in_use_ -= block.chunk.bytes;
  balance(account);
}

Chunk* FragmentHeap::retire(Account& account, uint64_t address) {
  const auto at = around(address);
  if (at == blocks_.end()) return nullptr;
  retire_block(account, at->second);
  return &at->second.chunk;
}

Chunk* FragmentHeap::chunk_around(uint64_t address) {
  const auto at = around(address);
  return at == blocks_.end() ? nullptr : &at->second.chunk;
}

void FragmentHeap::balance(Account& account) {
  // Every cached block has one block's size, because larger ones are never cached.
  while (cache_.size() > 1 && cache_.size() * kHugePage > 2 * in_use_) {
    drop_chunk(account, &cache_.front());
    cache_.pop_front();
  }
}

bool FragmentHeap::trim(Account& account) {
  const bool any = !cache_.empty();
  for (Chunk& chunk : cache_) drop_chunk(account, &chunk);
  cache_.clear();
  return any;
}

void FragmentHeap::clear(Account& account) {
  trim(account);
  for (auto& [base, block] : blocks_) drop_chunk(account, &block.chunk);
  blocks_.clear();
  by_size_.clear();
  in_use_ = 0;
}

}  // namespace sim
