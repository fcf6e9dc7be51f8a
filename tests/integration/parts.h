// Vendors' programs and libraries that tests fetch and never keep.
#pragma once

#include <string>
#include <vector>

#include "tests/integration/program.h"

namespace fracgpu::test {

// The first file that the pattern finds, or nothing.
std::string first_match(const std::string& pattern);

// Fetches a part (tests/fetch.sh) unless it is there. False, with the reason, where it cannot be
// had.
bool have_part(const std::string& part, std::string* where, std::string* why);

// How to start a part's program with the loader and the libraries that came with it, and with the
// simulator's libraries. Where this machine's C library is newer, which the simulator's may need,
// the machine's own come first. The loader preloads what LD_PRELOAD names.
std::vector<std::string> with_own_loader(const std::string& where, const std::string& program);

}  // namespace fracgpu::test
