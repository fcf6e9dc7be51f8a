// IPC handles that stand for a descriptor: who imports one asks the exporter's process for it, over
// an abstract socket that is named by the exporter's PID (ROCr, core/runtime/runtime.cpp).
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace sim {

// Answers from now on to importers: descriptor_of(address) is -1 where nothing was exported. False
// when that cannot be.
bool serve_descriptors(int (*descriptor_of)(uint64_t address));

// What the process with this PID answers for the address; -1 when there is none.
int descriptor_from(pid_t exporter, uint64_t address);

}  // namespace sim
