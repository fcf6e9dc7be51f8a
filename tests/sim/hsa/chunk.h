// What the kernel gives a process at a time: physical memory of the node, and addresses behind
// which a program can read and write. The addresses are host memory that costs nothing until
// touched, so that devices of 192 GB fit into any machine; a forked child does not get them, as
// KFD's mappings. Contents are a process's own: an importer of shared memory sees pages of zeros.
#pragma once

#include <cstdint>

#include "sim/node/account.h"

namespace sim {

inline constexpr uint64_t kHugePage = 2ULL << 20;  // alignment of addresses on the device

inline uint64_t round_up(uint64_t bytes, uint64_t to) {
  return (bytes + to - 1) / to * to;
}

// Addresses with nothing behind them (`usable` false) or with memory; 0 when there are none.
uint64_t map_addresses(uint64_t bytes, uint64_t alignment, bool usable, uint64_t wanted = 0);
void unmap_addresses(uint64_t base, uint64_t bytes);

struct Chunk {
  uint64_t base = 0;
  uint64_t bytes = 0;
  Physical physical;
};

// Device < 0: host memory. False when the device is full.
bool take_chunk(Account& account, int device, uint64_t bytes, Chunk* out);
void drop_chunk(Account& account, Chunk* chunk);

}  // namespace sim
