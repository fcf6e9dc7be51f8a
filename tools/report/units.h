// Times and counts in the form that a report prints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace fracgpu::tools::report {

// "850 us", "12.3 ms", "4.512 s", "1:02:03"
std::string duration(uint64_t ns);

// Parses a moment or a duration: "10s", "1.5s", "250ms", "2m", "1h". None if the text is something
// else.
std::optional<uint64_t> parse_duration(const std::string& text);

// "1,234,567"
std::string count(uint64_t number);

// "1 call", "2 calls"
std::string count(uint64_t number, const char* what);

}  // namespace fracgpu::tools::report
