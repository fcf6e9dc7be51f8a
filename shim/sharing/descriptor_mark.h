// A mark on an open file description: whose memory its descriptors stand for, and how much. The
// mark goes with them into every process and namespace that they are passed to.
//
// Drivers export memory as descriptors that differ in nothing that fstat shows. The mark is a
// shared lock on bytes far beyond any that a file or a driver uses. It blocks no other lock. The
// kernel shows it in /proc/self/fdinfo to every process that has the descriptor, and drops it with
// the last descriptor.
#pragma once

#include <cstdint>

namespace fracgpu {

struct DescriptorMark {
  uint32_t tenant = 0;    // layout::mark_of its ledger
  uint32_t exporter = 0;  // Ledger::mark_of_self of its process: 31 bits
  uint32_t number = 0;    // of the listed export in the tenant's ledger, or 0
  uint32_t units = 0;     // less than 2^30; 0 if the export is listed
  // Not 0: the descriptor stands for many objects, and this is its number in the exporter: less
  // than 2^30. `number` and `units` are 0.
  uint32_t objects = 0;
};

// The hash by which the exporter's ledger lists an object that such a descriptor holds at a place.
uint64_t hash_of_object(const DescriptorMark& mark, uint32_t place);

// Marks `fd`, for as long as any descriptor of its description is open. If the kernel refuses the
// lock there is no mark, and importers then count the memory as their own tenant's.
void mark_descriptor(int fd, const DescriptorMark& mark);

// False if there is no mark, or no /proc that shows it.
bool read_mark(int fd, DescriptorMark& mark);
// The same, in text that was read from the beginning of a file in /proc/self/fdinfo. A NUL ends it.
bool mark_in(const char* text, DescriptorMark& mark);

}  // namespace fracgpu
