// The tenant's view of AMD's devices; see amd_view.h.
#include "hooks/smi/amd_view.h"

namespace fracgpu::kfd {

bool view(const Observation& look, const Key& key, uint64_t physical, TenantView& view) {
  physical_bytes(key.c_str(), physical);
  return look.device(key.c_str(), physical, view);
}

bool any_capped(const Observation& look) {
  Key key;
  TenantView seen;
  for (int index = 0; key_of_index(index, key); ++index) {
    if (view(look, key, 0, seen)) return true;
  }
  return false;
}

uint64_t held_everywhere(const Observation& look, int slot, uint32_t pid) {
  uint64_t sum = 0;
  Key key;
  TenantView seen;
  for (int index = 0; key_of_index(index, key); ++index) {
    uint64_t bytes = 0;
    if (view(look, key, 0, seen)) {
      bytes = look.held(slot, key.c_str());
    } else if (!bytes_of(pid, key.c_str(), bytes)) {
      bytes = 0;
    }
    sum += bytes;
  }
  return sum;
}

bool show(const Observation& look, ComputeProcess& process) {
  const int slot = look.find(process_of_either(process.process_id));
  if (slot < 0) return false;
  process.vram_usage = held_everywhere(look, slot, process.process_id);
  return true;
}

}  // namespace fracgpu::kfd
