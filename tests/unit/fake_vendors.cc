// No vendors: nothing tells what any driver reports, and there are no devices to list.
#include "shim/vendor/backend.h"

constinit const std::span<const fracgpu::VendorBackend* const> fracgpu::vendor_backends = {};
