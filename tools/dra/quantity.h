// Kubernetes' way to write amounts: "4Gi", "500M", "42949672960".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fracgpu::tools::dra {

// In bytes, of which a part is left out; none where the text is no amount, negative, or too large.
std::optional<uint64_t> bytes_of(std::string_view quantity);

// As the API server itself would write it: "40Gi", "40536Mi", "1000".
std::string quantity_of(uint64_t bytes);

}  // namespace fracgpu::tools::dra
