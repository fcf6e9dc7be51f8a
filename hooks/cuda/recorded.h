// Recording of CUDA's memory calls.
#pragma once

namespace fracgpu::cuda {

// Puts the wrappers into the driver's slots; see VendorBackend::record_calls.
void record_calls();

}  // namespace fracgpu::cuda
