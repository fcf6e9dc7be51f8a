// Times and counts as a report tells them.
#pragma once

#include <cstdint>
#include <string>

namespace fracgpu::tools::report {

// "850 us", "12.3 ms", "4.512 s", "1:02:03"
std::string duration(uint64_t ns);

// "1,234,567"
std::string count(uint64_t number);

// "1 call", "2 calls"
std::string count(uint64_t number, const char* what);

}  // namespace fracgpu::tools::report
