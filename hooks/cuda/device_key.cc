// Formats the key of a device; see device_key.h.
#include "hooks/cuda/device_key.h"

#include "shim/vendor/backend.h"

namespace fracgpu::cuda {
namespace {

Text<64> key_from(const char* kind, const unsigned char* uuid) {
  Text<64> key(kind);
  for (int i = 0; i < kUuidBytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) key.append("-");
    key.append("{:02x}", uuid[i]);
  }
  return key;
}

bool exists(const Text<64>& key) {
  Selector selector;
  return selector.parse(key.view()) && device_may_exist(selector);
}

}  // namespace

Text<64> key_of_uuid(const void* uuid, bool is_instance) {
  const auto* const bytes = static_cast<const unsigned char*>(uuid);
  const Text<64> gpu = key_from("GPU-", bytes), instance = key_from("MIG-", bytes);
  return is_instance || (!exists(gpu) && exists(instance)) ? instance : gpu;
}

}  // namespace fracgpu::cuda
