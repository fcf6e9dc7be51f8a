// RM as one process sees it: clients, their devices and subdevices, and the memory that belongs to
// them. The simulated node counts the memory, across processes and after their death.
//
// The program that links this has RM behind its `ioctl`, for the descriptor of `open_rm`. Handles
// that are free are given out again at once, lowest first. As in NVIDIA's RM, an object ends with
// its parent, freeing an object that is not there succeeds if its client is, and the size of an
// allocation's parameters is that of the class, whatever the request says.
#pragma once

#include <cstdint>

namespace rm {

inline constexpr uint32_t kFirstClient = 0xc1d00000, kFirstObject = 0xcaf00000;

int open_rm();

// What of a hundred requests fail in RM, from now on: half of them by their status, half by -1.
void fail_requests(unsigned percent);

// Whether RM itself got a request of the calling thread since the last call of this.
bool was_asked();

// Bytes that RM takes at most for so much memory.
uint64_t most_taken(uint64_t bytes, uint32_t attributes);

}  // namespace rm
