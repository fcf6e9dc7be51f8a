// The look-up behind both entry-point getters.
// A base name and a version give the newest ABI that is not newer than asked; with the per-thread
// flag, functions that have per-thread twins give those only. What is found is always the address
// of an exported symbol.
#pragma once

namespace sim {

// Null with *status saying why when there is none.
void* find_symbol(const char* base, unsigned version, bool per_thread, int* status);

}  // namespace sim
