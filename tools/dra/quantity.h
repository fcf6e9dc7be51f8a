// Kubernetes' notation of amounts: "4Gi", "500M", "42949672960".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fracgpu::tools::dra {

// In bytes, rounded down. None if the text is not an amount, negative, or too large.
std::optional<uint64_t> bytes_of(std::string_view quantity);

// In the API server's own notation: "40Gi", "40536Mi", "1000".
std::string quantity_of(uint64_t bytes);

}  // namespace fracgpu::tools::dra
