// Agents: one processor and the visible GPUs, in the order of KFD's topology. What a GPU is comes
// from its row of the node; what all of a kind share (waves, work-group sizes, engines) are the
// figures that rocminfo shows for MI210 and MI300X.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sim/hsa/isa.h"
#include "sim/hsa/kernel.h"
#include "sim/hsa/signal.h"

using sim::Agent;
using sim::answer;
using sim::Runtime;

namespace {

// Texts have room for 64 characters, and the real runtime clears all of it (UUIDs have 21).
hsa_status_t text(void* out, const char* value, size_t room = 64) {
  std::memset(out, 0, room);
  std::memcpy(out, value, std::min(std::strlen(value), room - 1));
  return HSA_STATUS_SUCCESS;
}

template <typename Value, size_t count>
hsa_status_t list(void* out, const Value (&values)[count]) {
  std::memcpy(out, values, sizeof values);
  return HSA_STATUS_SUCCESS;
}

constexpr uint32_t kWaveSize = 64, kWorkgroup = 1024, kSimds = 4, kMaxQueue = 0x20000;

hsa_status_t extensions(void* out, bool gpu) {
  uint8_t bits[128] = {};
  if (gpu) bits[HSA_EXTENSION_IMAGES / 8] |= 1 << HSA_EXTENSION_IMAGES % 8;
  bits[HSA_EXTENSION_AMD_LOADER / 8] |= 1 << HSA_EXTENSION_AMD_LOADER % 8;
  return list(out, bits);
}

hsa_status_t common_info(const Agent& agent, uint32_t attribute, void* value) {
  const bool gpu = agent.gpu();
  switch (attribute) {
    case HSA_AGENT_INFO_FEATURE:
      return answer(value, gpu ? HSA_AGENT_FEATURE_KERNEL_DISPATCH : hsa_agent_feature_t{});
    case HSA_AGENT_INFO_MACHINE_MODEL:
      return answer(value, HSA_MACHINE_MODEL_LARGE);
    case HSA_AGENT_INFO_PROFILE:
      return answer(value, gpu ? HSA_PROFILE_BASE : HSA_PROFILE_FULL);
    case HSA_AGENT_INFO_DEFAULT_FLOAT_ROUNDING_MODE:
    case HSA_AGENT_INFO_BASE_PROFILE_DEFAULT_FLOAT_ROUNDING_MODES:
      return answer(value, HSA_DEFAULT_FLOAT_ROUNDING_MODE_NEAR);
    case HSA_AGENT_INFO_FAST_F16_OPERATION:
      return answer(value, gpu);
    case HSA_AGENT_INFO_WAVEFRONT_SIZE:
      return answer<uint32_t>(value, gpu ? kWaveSize : 0);
    case HSA_AGENT_INFO_WORKGROUP_MAX_DIM: {
      const uint16_t most = gpu ? kWorkgroup : 0;
      return list(value, {most, most, most});
    }
    case HSA_AGENT_INFO_WORKGROUP_MAX_SIZE:
      return answer<uint32_t>(value, gpu ? kWorkgroup : 0);
    case HSA_AGENT_INFO_GRID_MAX_DIM: {
      const uint32_t most = gpu ? INT32_MAX : 0;
      return answer(value, hsa_dim3_t{most, gpu ? 65535U : 0, gpu ? 65535U : 0});
    }
    case HSA_AGENT_INFO_GRID_MAX_SIZE:
      return answer<uint32_t>(value, gpu ? UINT32_MAX : 0);
    case HSA_AGENT_INFO_FBARRIER_MAX_SIZE:
      return answer<uint32_t>(value, gpu ? 32 : 0);
    case HSA_AGENT_INFO_QUEUES_MAX:
      return answer<uint32_t>(value, gpu ? 128 : 0);
    case HSA_AGENT_INFO_QUEUE_MIN_SIZE:
      return answer<uint32_t>(value, gpu ? 64 : 0);
    case HSA_AGENT_INFO_QUEUE_MAX_SIZE:
      return answer<uint32_t>(value, gpu ? kMaxQueue : 0);
    case HSA_AGENT_INFO_QUEUE_TYPE:
      return answer(value, HSA_QUEUE_TYPE_MULTI);
    case HSA_AGENT_INFO_NODE:
    case HSA_AMD_AGENT_INFO_DRIVER_NODE_ID:
      return answer(value, agent.node);
    case HSA_AGENT_INFO_DEVICE:
      return answer(value, gpu ? HSA_DEVICE_TYPE_GPU : HSA_DEVICE_TYPE_CPU);
    case HSA_AGENT_INFO_CACHE_SIZE:
      if (!gpu) return list<uint32_t>(value, {32 << 10, 0, 0, 0});
      return list<uint32_t>(value, {32 << 10, 4 << 20, 256 << 20, 0});
    case HSA_AGENT_INFO_EXTENSIONS:
      return extensions(value, gpu);
    case HSA_AGENT_INFO_VERSION_MAJOR:
    case HSA_AGENT_INFO_VERSION_MINOR:
      return answer<uint16_t>(value, 1);
    case HSA_AMD_AGENT_INFO_CACHELINE_SIZE:
      return answer<uint32_t>(value, gpu ? 128 : 64);
    case HSA_AMD_AGENT_INFO_SVM_DIRECT_HOST_ACCESS:
      return answer(value, !gpu);
    case sim::kAgentNearestCpu:
      return answer(value, sim::handle(*Runtime::get().processor()));
    case sim::kAgentMemoryProperties:
      return list<uint8_t>(value, {0, 0, 0, 0, 0, 0, 0, 0});
    case sim::kAgentClockCounters: {
      const uint64_t now = sim::timestamp();
      return list<uint64_t>(value, {now, now, now, 1000000000});
    }
    default:
      sim::unanswered("hsa_agent_get_info", attribute);
      return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  }
}

hsa_status_t processor_info(const Agent& agent, uint32_t attribute, void* value) {
  const auto processors = static_cast<uint32_t>(sysconf(_SC_NPROCESSORS_ONLN));
  switch (attribute) {
    case HSA_AGENT_INFO_NAME:
    case HSA_AMD_AGENT_INFO_PRODUCT_NAME:
      return text(value, "Simulated Processor");
    case HSA_AGENT_INFO_VENDOR_NAME:
      return text(value, "CPU");
    case HSA_AGENT_INFO_ISA:
      return answer(value, hsa_isa_t{0});
    case HSA_AMD_AGENT_INFO_UUID:
      return text(value, "CPU-XX", 21);
    case HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT:
      return answer(value, processors);
    case HSA_AMD_AGENT_INFO_MAX_CLOCK_FREQUENCY:
      return answer<uint32_t>(value, 3000);
    case HSA_AMD_AGENT_INFO_CHIP_ID:
    case HSA_AMD_AGENT_INFO_BDFID:
    case HSA_AMD_AGENT_INFO_DOMAIN:
    case HSA_AMD_AGENT_INFO_MEMORY_WIDTH:
    case HSA_AMD_AGENT_INFO_MEMORY_MAX_FREQUENCY:
    case HSA_AMD_AGENT_INFO_MAX_ADDRESS_WATCH_POINTS:
    case HSA_AMD_AGENT_INFO_MAX_WAVES_PER_CU:
    case HSA_AMD_AGENT_INFO_NUM_SIMDS_PER_CU:
    case HSA_AMD_AGENT_INFO_NUM_SHADER_ENGINES:
    case HSA_AMD_AGENT_INFO_NUM_SHADER_ARRAYS_PER_SE:
    case HSA_AMD_AGENT_INFO_ASIC_REVISION:
      return answer<uint32_t>(value, 0);
    default:
      return common_info(agent, attribute, value);
  }
}

hsa_status_t image_info(uint32_t attribute, void* value) {
  switch (attribute) {
    case HSA_EXT_AGENT_INFO_IMAGE_1D_MAX_ELEMENTS:
    case HSA_EXT_AGENT_INFO_IMAGE_1DA_MAX_ELEMENTS:
      return answer<uint32_t>(value, 16384);
    case HSA_EXT_AGENT_INFO_IMAGE_1DB_MAX_ELEMENTS:
      return answer<uint32_t>(value, UINT32_MAX);
    case HSA_EXT_AGENT_INFO_IMAGE_2D_MAX_ELEMENTS:
    case HSA_EXT_AGENT_INFO_IMAGE_2DA_MAX_ELEMENTS:
    case HSA_EXT_AGENT_INFO_IMAGE_2DDEPTH_MAX_ELEMENTS:
    case HSA_EXT_AGENT_INFO_IMAGE_2DADEPTH_MAX_ELEMENTS:
      return list<uint32_t>(value, {16384, 16384});
    case HSA_EXT_AGENT_INFO_IMAGE_3D_MAX_ELEMENTS:
      return list<uint32_t>(value, {16384, 16384, 8192});
    case HSA_EXT_AGENT_INFO_IMAGE_ARRAY_MAX_LAYERS:
      return answer<uint32_t>(value, 8192);
    case HSA_EXT_AGENT_INFO_MAX_IMAGE_RD_HANDLES:
      return answer<uint32_t>(value, 128);
    case HSA_EXT_AGENT_INFO_MAX_IMAGE_RORW_HANDLES:
      return answer<uint32_t>(value, 64);
    case HSA_EXT_AGENT_INFO_MAX_SAMPLER_HANDLERS:
      return answer<uint32_t>(value, 16);
    default:
      return answer<uint32_t>(value, 256);  // pitch, in texels
  }
}

hsa_status_t gpu_info(const Agent& agent, uint32_t attribute, void* value) {
  Runtime& runtime = Runtime::get();
  const sim::DeviceRow& row = runtime.row(agent);
  if (attribute >= HSA_EXT_AGENT_INFO_IMAGE_1D_MAX_ELEMENTS &&
      attribute <= HSA_EXT_AGENT_INFO_IMAGE_LINEAR_ROW_PITCH_ALIGNMENT)
    return image_info(attribute, value);
  char digits[24];
  switch (attribute) {
    case HSA_AGENT_INFO_NAME:
      return text(value, sim::processor_name(row).c_str());
    case HSA_AGENT_INFO_VENDOR_NAME:
      return text(value, "AMD");
    case HSA_AMD_AGENT_INFO_PRODUCT_NAME:
      return text(value, row.name);
    case HSA_AGENT_INFO_ISA:
      return answer(value, sim::isa_of(agent));
    case HSA_AMD_AGENT_INFO_UUID:
      std::snprintf(digits, sizeof digits, "GPU-%016llx",
                    static_cast<unsigned long long>(row.unique_id));
      return text(value, digits, 21);
    case HSA_AMD_AGENT_INFO_CHIP_ID:
      return answer<uint32_t>(value, row.pci_id >> 16);
    case HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT:
    case HSA_AMD_AGENT_INFO_COOPERATIVE_COMPUTE_UNIT_COUNT:
      return answer<uint32_t>(value, row.multiprocessors);
    case HSA_AMD_AGENT_INFO_BDFID:
      return answer<uint32_t>(value, row.location_id);
    case HSA_AMD_AGENT_INFO_DOMAIN:
      return answer<uint32_t>(value, row.pci_domain);
    case HSA_AMD_AGENT_INFO_MAX_CLOCK_FREQUENCY:
      return answer<uint32_t>(value, 2100);
    case HSA_AMD_AGENT_INFO_MEMORY_WIDTH:
      return answer<uint32_t>(value, 8192);
    case HSA_AMD_AGENT_INFO_MEMORY_MAX_FREQUENCY:
      return answer<uint32_t>(value, 1300);
    case HSA_AMD_AGENT_INFO_MAX_ADDRESS_WATCH_POINTS:
      return answer<uint32_t>(value, 4);
    case HSA_AMD_AGENT_INFO_MAX_WAVES_PER_CU:
      return answer<uint32_t>(value, 32);
    case HSA_AMD_AGENT_INFO_NUM_SIMDS_PER_CU:
      return answer<uint32_t>(value, kSimds);
    case HSA_AMD_AGENT_INFO_NUM_SHADER_ENGINES:
      return answer<uint32_t>(value, std::max(1U, 32 / row.partitions));
    case HSA_AMD_AGENT_INFO_NUM_SHADER_ARRAYS_PER_SE:
      return answer<uint32_t>(value, 1);
    case HSA_AMD_AGENT_INFO_HDP_FLUSH:
      return answer(value, hsa_amd_hdp_flush_t{nullptr, nullptr});
    case HSA_AMD_AGENT_INFO_COOPERATIVE_QUEUES:
      return answer(value, true);
    case HSA_AMD_AGENT_INFO_ASIC_REVISION:
      return answer<uint32_t>(value, 1);
    case sim::kAgentMemoryAvail:
      return answer<uint64_t>(value, available_memory(agent));
    case sim::kAgentTimestampFrequency:
      return answer<uint64_t>(value, 1000000000);
    case sim::kAgentAsicFamilyId:
      return answer<uint32_t>(value, 141);
    case sim::kAgentUcodeVersion:
      return answer<uint32_t>(value, 160);
    case sim::kAgentSdmaUcodeVersion:
      return answer<uint32_t>(value, 22);
    case sim::kAgentSdmaEngines:
      return answer<uint32_t>(value, 2);
    case sim::kAgentSdmaXgmiEngines:
      return answer<uint32_t>(value, row.partitions > 1 ? 0 : 12);
    case sim::kAgentIommuSupport:
      return answer<uint32_t>(value, 0);
    case sim::kAgentXccCount:
      return answer<uint32_t>(value, row.gfx_target_version >= 90400 ? 8 / row.partitions : 1);
    case sim::kAgentDriverUid:
      if (sim::is_before_5_7()) return common_info(agent, attribute, value);
      return answer<uint32_t>(value, row.kfd_gpu_id);
    case sim::kAgentScratchLimitMax:
    case sim::kAgentScratchLimitCurrent:
      return answer<uint64_t>(value, 4ULL << 30);
    default:
      return common_info(agent, attribute, value);
  }
}

}  // namespace

SIM_API hsa_status_t hsa_iterate_agents(hsa_status_t (*callback)(hsa_agent_t, void*), void* data) {
  SIM_CALL(hsa_iterate_agents);
  if (callback == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  for (const auto& agent : Runtime::get().agents()) {
    const hsa_status_t result = callback(sim::handle(*agent), data);
    if (result != HSA_STATUS_SUCCESS) return result;
  }
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_agent_get_info(hsa_agent_t given, hsa_agent_info_t attribute,
                                        void* value) {
  SIM_CALL(hsa_agent_get_info);
  if (value == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Agent* agent = Runtime::get().find(given);
  if (agent == nullptr) return HSA_STATUS_ERROR_INVALID_AGENT;
  return agent->gpu() ? gpu_info(*agent, attribute, value)
                      : processor_info(*agent, attribute, value);
}
