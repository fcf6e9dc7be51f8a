// Recording of HSA's memory calls.
#pragma once

namespace fracgpu::hsa {

// Puts the wrappers into the runtime's slots; see VendorBackend::record_calls.
void record_calls();

}  // namespace fracgpu::hsa
