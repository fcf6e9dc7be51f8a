// Small pieces of device memory cut from blocks of 2 MiB, as the real runtime does for ordinary
// requests (ROCR-Runtime, core/util/simple_heap.h and amd_memory_region.cpp, from which the rules
// are taken):
//  - More than a block's size gets a block of its own, in whole multiples of 2 MiB. What is left of
//    it serves nobody, and it goes back to the kernel when it is freed.
//  - Anything else comes from the smallest hole that is large enough; else, if it is smaller than a
//    block, from the youngest cached block; else from a new one.
//  - A block that is wholly free goes into the cache. While the cache has more than one block and
//    more than twice the bytes of blocks in use, its oldest goes back to the kernel.
//  - A retired block (one of its own, or exported) is counted nowhere and never used again.
// One difference: the real one does not join the free pieces of a retired block, so that one with
// several pieces stays until the process ends; here it goes with the last piece.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <utility>

#include "sim/hsa/chunk.h"

namespace sim {

class FragmentHeap {
 public:
  // 0 when the device is full; the caller may then trim() and try again.
  uint64_t take(Account& account, int device, uint64_t bytes);
  // False if it is none of ours.
  bool give_back(Account& account, uint64_t address);
  // The block around the address, out of use for further requests; null if it is none of ours.
  Chunk* retire(Account& account, uint64_t address);
  // The same, and the block stays in use.
  Chunk* chunk_around(uint64_t address);
  // Returns the cache to the kernel; true if there was any.
  bool trim(Account& account);
  // Returns everything.
  void clear(Account& account);

 private:
  struct Block {
    Chunk chunk;
    bool retired = false;
    std::map<uint64_t, uint64_t> used;   // address to bytes
    std::map<uint64_t, uint64_t> holes;  // the same
  };
  using Blocks = std::map<uint64_t, Block>;

  Blocks::iterator around(uint64_t address);
  uint64_t cut(Block& block, uint64_t hole, uint64_t bytes);
  void add_hole(Block& block, uint64_t address, uint64_t bytes);
  void remove_hole(Block& block, uint64_t address);
  void retire_block(Account& account, Block& block);
  void balance(Account& account);

  Blocks blocks_;                                    // at least partly in use
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // holes: bytes, address
  std::deque<Chunk> cache_;                          // oldest first
  uint64_t in_use_ = 0;                              // bytes of the blocks that are not retired
};

}  // namespace sim
