// Where imported memory comes from.
#pragma once

#include <cstdint>

namespace fracgpu {

struct ImportSource {
  // Imports' number of the exporter; 0: none.
  uint8_t exporter = 0;
  // The number of the listed export in its tenant's ledger; 0: not known, or not listed.
  uint16_t number = 0;
};

}  // namespace fracgpu
