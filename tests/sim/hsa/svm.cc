// Shared virtual memory: host memory that devices reach by migration. The node does not count it;
// attributes are accepted and forgotten.
#include "sim/hsa/signal.h"

using sim::Runtime;

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
  if (Runtime::get().find(agent) == nullptr) return HSA_STATUS_ERROR_INVALID_AGENT;
  sim::when_zero(count, awaited, [=] {
    const uint64_t now = sim::timestamp();
    sim::complete(completion, now, now);
  });
  return HSA_STATUS_SUCCESS;
}
