// Finds the vendor of a device; see backend.h.
#include "shim/vendor/backend.h"

#include "shim/base/no_cancellation.h"

namespace fracgpu {
namespace {

constexpr VendorBackend kNobody{.name = "", .libraries = {}, .owns = nullptr};

}  // namespace

const VendorBackend& backend_of(const char* device_key) {
  for (const VendorBackend* const vendor : vendor_backends) {
    if (vendor->owns(device_key)) return *vendor;
  }
  return kNobody;
}

void start_vendors() {
  const NoCancellation scope;
  for (const VendorBackend* const vendor : vendor_backends) {
    for (VendorLibrary* const library : vendor->libraries) {
      if (!library->resolve()) continue;
      vendor->start();
      break;
    }
  }
}

bool device_may_exist(const Selector& selector) {
  if (!selector.key.empty()) return backend_of(selector.key.c_str()).device_may_exist(selector);
  // An index or a bus id may belong to any vendor: each numbers its own devices from 0.
  for (const VendorBackend* const vendor : vendor_backends) {
    if (vendor->device_may_exist(selector)) return true;
  }
  return vendor_backends.empty();
}

}  // namespace fracgpu
