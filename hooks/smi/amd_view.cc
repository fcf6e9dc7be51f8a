// The tenant's view of AMD's devices; see amd_view.h.
#include "hooks/smi/amd_view.h"

#include <algorithm>

namespace fracgpu::kfd {

bool view(const Observation& look, const Key& key, uint64_t physical, TenantView& view) {
  physical_bytes(key.c_str(), physical);
  if (!look.device(key.c_str(), physical, view)) return false;
  if (physical > 0) view.cap = std::min(view.cap, physical);
  return true;
}

bool any_capped(const Observation& look) {
  const GpuList gpus;
  return std::any_of(gpus.begin(), gpus.end(), [&](const Gpu& gpu) {
    TenantView seen;
    return look.device(gpu.key().c_str(), gpu.physical_bytes(), seen);
  });
}

uint64_t held_everywhere(const Observation& look, int slot, uint32_t pid) {
  uint64_t sum = 0;
  for (const GpuList gpus; const Gpu& gpu : gpus) {
    const Key key = gpu.key();
    TenantView seen;
    uint64_t bytes = 0;
    if (look.device(key.c_str(), gpu.physical_bytes(), seen)) {
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
