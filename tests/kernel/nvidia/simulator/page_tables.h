// The GPU's page tables of this process: which addresses lead to which memory. They take no memory
// themselves.
#pragma once

#include <cstdint>

#include "memory.h"

namespace rmsim::page_tables {

void map(uint64_t address, uint64_t length, char* host, const MemoryPtr& memory);
void unmap(uint64_t address, uint64_t length);
void unmap_at(uint64_t address);  // the mapping that begins there

// Where the address leads, and how many bytes follow it there; nullptr: a fault.
char* find(uint64_t address, uint64_t& left);
MemoryPtr memory_at(uint64_t address, uint64_t& offset);

void forget_all();  // in a forked child

}  // namespace rmsim::page_tables
