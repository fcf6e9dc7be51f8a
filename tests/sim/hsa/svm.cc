// Shared virtual memory: host memory that devices reach by migration. Attributes are accepted and
// forgotten. What is prefetched to a device lies there until it is prefetched to the host or
// elsewhere, or the device's memory is wanted for something else: the kernel then moves it back,
// also for the process's own allocations, and where there is no room to begin with, a prefetch does
// nothing, which nobody is told (kfd_svm.c; "drm/amdgpu: Allow TTM to evict svm bo from same
// process", July 2022; Runtime::SvmPrefetch of ROCr). That it also goes with an munmap is not
// played.
#include "sim/hsa/svm.h"

#include <algorithm>
#include <map>

#include "sim/hsa/signal.h"

using sim::Agent;
using sim::Runtime;

namespace sim {
namespace {

struct OnDevice {
  uint64_t end = 0;
  const Agent* agent = nullptr;
};

// By the first address.
std::map<uint64_t, OnDevice>& on_devices() {
  static auto* const ranges = new std::map<uint64_t, OnDevice>;
  return *ranges;
}

void release(const Agent& agent, uint64_t bytes) {
  Runtime::get().account().release(agent.device, bytes, Kind::kModule);
}

// What of these addresses is on a device leaves it.
void move_to_host(uint64_t begin, uint64_t end) {
  auto at = on_devices().upper_bound(begin);
  if (at != on_devices().begin()) --at;
  while (at != on_devices().end() && at->first < end) {
    const auto [first, range] = *at;
    if (range.end <= begin) {
      ++at;
      continue;
    }
    at = on_devices().erase(at);
    release(*range.agent, std::min(end, range.end) - std::max(begin, first));
    if (first < begin) on_devices()[first] = {begin, range.agent};
    if (range.end > end) on_devices()[end] = {range.end, range.agent};
  }
}

void prefetch(uint64_t begin, uint64_t end, const Agent& agent) {
  const Guard guard(Runtime::get().lock());
  move_to_host(begin, end);
  if (agent.gpu() && Runtime::get().account().reserve(agent.device, end - begin, Kind::kModule))
    on_devices()[begin] = {end, &agent};
}

}  // namespace

bool evict_svm(const Agent& agent) {
  bool any = false;
  for (auto at = on_devices().begin(); at != on_devices().end();) {
    if (at->second.agent == &agent) {
      release(agent, at->second.end - at->first);
      at = on_devices().erase(at);
      any = true;
    } else {
      ++at;
    }
  }
  return any;
}

}  // namespace sim

SIM_API hsa_status_t hsa_amd_svm_attributes_set(void* address, size_t bytes,
                                                hsa_amd_svm_attribute_pair_t* list, size_t count) {
  SIM_CALL(hsa_amd_svm_attributes_set);
  return address == nullptr || bytes == 0 || (list == nullptr && count != 0)
             ? HSA_STATUS_ERROR_INVALID_ARGUMENT
             : HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_amd_svm_attributes_get(void* address, size_t bytes,
                                                hsa_amd_svm_attribute_pair_t* list, size_t count) {
  SIM_CALL(hsa_amd_svm_attributes_get);
  if (address == nullptr || bytes == 0 || (list == nullptr && count != 0))
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  for (size_t i = 0; i < count; ++i) {
    // The question about access is answered in the attribute's place; its value is the agent.
    if (list[i].attribute == HSA_AMD_SVM_ATTRIB_ACCESS_QUERY)
      list[i].attribute = HSA_AMD_SVM_ATTRIB_AGENT_ACCESSIBLE;
    else
      list[i].value = 0;
  }
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_amd_svm_prefetch_async(void* address, size_t bytes, hsa_agent_t agent,
                                                uint32_t count, const hsa_signal_t* awaited,
                                                hsa_signal_t completion) {
  SIM_CALL(hsa_amd_svm_prefetch_async);
  if (address == nullptr || bytes == 0 || (count != 0 && awaited == nullptr))
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Agent* const to = Runtime::get().find(agent);
  if (to == nullptr) return HSA_STATUS_ERROR_INVALID_AGENT;
  const uint64_t begin = reinterpret_cast<uint64_t>(address) / sim::kGrain * sim::kGrain;
  const uint64_t end = sim::round_up(reinterpret_cast<uint64_t>(address) + bytes, sim::kGrain);
  sim::when_zero(count, awaited, [=] {
    sim::prefetch(begin, end, *to);
    const uint64_t now = sim::timestamp();
    sim::complete(completion, now, now);
  });
  return HSA_STATUS_SUCCESS;
}
