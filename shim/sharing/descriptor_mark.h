// A mark on an open file description, which goes with it into whatever process and namespace its
// descriptors are passed to: whose memory it stands for, and how much.
//
// Drivers hand out memory as descriptors that differ in nothing that fstat shows. The mark is a
// shared lock on bytes far beyond any that a file or a driver uses. It keeps nobody from anything,
// the kernel shows it to whoever has the descriptor, in /proc/self/fdinfo, and drops it with the
// last of them.
#pragma once

#include <cstdint>

namespace fracgpu {

struct DescriptorMark {
  uint32_t tenant = 0;    // layout::mark_of its ledger
  uint32_t exporter = 0;  // Ledger::mark_of_self of its process: 31 bits
  uint32_t units = 0;     // less than 2^31
};

// Marks `fd`, for as long as any descriptor of its description is open. Where the kernel refuses
// the lock there is no mark, and importers then count the memory as their own tenant's.
void mark_descriptor(int fd, const DescriptorMark& mark);

// False where there is none, or no /proc to see it in.
bool read_mark(int fd, DescriptorMark& mark);

}  // namespace fracgpu
