// How many system calls a program makes for a command: a figure that no other load changes.
#pragma once

#include <string>

#include "tests/integration/program.h"

namespace fracgpu::test {

// Gives a program that waits the line and lets it run until it waits again. Returns the system
// calls of its main thread in between, with those by which it says that it waits; -1 with a failed
// expectation where it ends or cannot be traced.
int system_calls_of(Program& program, const std::string& line);

}  // namespace fracgpu::test
