// Queues of releases after 7.2: several in one call, queues that the runtime hands out more than
// once, and those that only copy, which take nothing of the device. As ROCr has them by its public
// header (hsa_ext_amd.h 1.16 to 1.32) and its tests (rocrtst, counted_queues and queue_create).
#include <atomic>
#include <cstdlib>
#include <set>

#include "sim/hsa/queue.h"
#include "sim/hsa/runtime.h"

using sim::QueueDescription;
using sim::Runtime;
using sim::SdmaQueue;

namespace {

constexpr uint32_t kPacketBytes = 64;
constexpr uint16_t kVersion = 1;
constexpr uint8_t kCompute = 0;
constexpr uint32_t kPriorities = 3;

struct Counted {
  uint64_t agent;
  uint32_t priority;
  hsa_queue_t* queue;
  uint32_t uses;
};

std::mutex& mutex() {
  static std::mutex* const mutex = new std::mutex;
  return *mutex;
}
std::vector<Counted>& counted() {
  static auto* const list = new std::vector<Counted>;
  return *list;
}
std::set<uint64_t>& copying() {
  static auto* const set = new std::set<uint64_t>;
  return *set;
}

// How many of one priority there are before they are shared.
size_t most_queues() {
  const char* text = std::getenv("GPU_MAX_HW_QUEUES");
  const long number = text != nullptr ? std::strtol(text, nullptr, 10) : 0;
  return number > 0 ? static_cast<size_t>(number) : 4;
}

hsa_status_t create(hsa_agent_t agent, QueueDescription& wanted) {
  wanted.queue = nullptr;
  if (wanted.version != kVersion || wanted.priority >= kPriorities || wanted.traffic_class != 0)
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  // Those that copy only are made by their own call here.
  if (wanted.engine != kCompute) return HSA_STATUS_ERROR_INVALID_QUEUE_CREATION;
  if (wanted.bytes % kPacketBytes != 0) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  return sim::make_queue(agent, wanted.bytes / kPacketBytes, wanted.compute.type,
                         wanted.compute.private_segment, &wanted.queue);
}

}  // namespace

SIM_API hsa_status_t hsa_amd_queue_create(hsa_agent_t agent, QueueDescription* wanted,
                                          uint32_t count) {
  SIM_CALL(hsa_amd_queue_create);
  if (wanted == nullptr || count == 0) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  if (Runtime::get().find(agent) == nullptr) return HSA_STATUS_ERROR_INVALID_AGENT;
  hsa_status_t first_error = HSA_STATUS_SUCCESS;
  for (uint32_t i = 0; i < count; ++i) {
    const hsa_status_t result = create(agent, wanted[i]);
    if (first_error == HSA_STATUS_SUCCESS) first_error = result;
  }
  return first_error;
}

SIM_API hsa_status_t hsa_amd_counted_queue_acquire(hsa_agent_t agent, hsa_queue_type32_t type,
                                                   uint32_t priority,
                                                   void (*)(hsa_status_t, hsa_queue_t*, void*),
                                                   void*, uint64_t /*flags*/, hsa_queue_t** out) {
  SIM_CALL(hsa_amd_counted_queue_acquire);
  if (out == nullptr || priority >= kPriorities) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const sim::Guard guard(mutex());
  Counted* least = nullptr;
  size_t count = 0;
  for (Counted& known : counted()) {
    if (known.agent != agent.handle || known.priority != priority) continue;
    ++count;
    if (least == nullptr || known.uses < least->uses) least = &known;
  }
  if (count >= most_queues()) {
    ++least->uses;
    *out = least->queue;
    return HSA_STATUS_SUCCESS;
  }
  const hsa_status_t result = sim::make_queue(agent, 16384, type, UINT32_MAX, out);
  if (result == HSA_STATUS_SUCCESS) counted().push_back({agent.handle, priority, *out, 1});
  return result;
}

SIM_API hsa_status_t hsa_amd_counted_queue_release(hsa_queue_t* queue) {
  SIM_CALL(hsa_amd_counted_queue_release);
  const sim::Guard guard(mutex());
  for (auto at = counted().begin(); at != counted().end(); ++at) {
    if (at->queue != queue) continue;
    if (--at->uses > 0) return HSA_STATUS_SUCCESS;
    counted().erase(at);
    return sim::end_queue(queue) ? HSA_STATUS_SUCCESS : HSA_STATUS_ERROR_INVALID_QUEUE;
  }
  return HSA_STATUS_ERROR_INVALID_QUEUE;
}

SIM_API hsa_status_t hsa_amd_sdma_queue_create(hsa_agent_t given, uint32_t /*flags*/,
                                               uint32_t /*engine*/, uint64_t /*flags*/,
                                               SdmaQueue* out) {
  SIM_CALL(hsa_amd_sdma_queue_create);
  const sim::Agent* agent = Runtime::get().find(given);
  if (agent == nullptr || !agent->gpu()) return HSA_STATUS_ERROR_INVALID_AGENT;
  if (out == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  static std::atomic<uint64_t> next{1};
  out->handle = next.fetch_add(1);
  const sim::Guard guard(mutex());
  copying().insert(out->handle);
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_amd_sdma_queue_destroy(SdmaQueue queue) {
  SIM_CALL(hsa_amd_sdma_queue_destroy);
  const sim::Guard guard(mutex());
  return copying().erase(queue.handle) == 1 ? HSA_STATUS_SUCCESS : HSA_STATUS_ERROR_INVALID_QUEUE;
}
