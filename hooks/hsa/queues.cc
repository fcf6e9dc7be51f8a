// Queues. What the runtime takes for one it asks the kernel driver for, where it is charged
// (kernel.h). Here are their names, for what people read, and what goes with a queue.
#include "hooks/hsa/kernel.h"
#include "hooks/hsa/overhead_call.h"

namespace fracgpu::hsa {
namespace {

// Calls `make()`, which makes queues of the agent, as the program's call `api`.
template <typename Make>
hsa_status_t make_queues(const char* api, hsa_agent_t agent, Make make) {
  {
    Hook hook;
    Context context;
    if (hook.active() &&
        place_of(hook.process(), api, Handle::agent, agent.handle, context) == Place::refused) {
      return kOutOfResources;
    }
  }
  const UpperCall call(api);
  return make();
}

}  // namespace

hsa_status_t hsa_queue_create(hsa_agent_t agent, uint32_t size, uint32_t type, void* callback,
                              void* data, uint32_t private_segment_size,
                              uint32_t group_segment_size, hsa_queue_t** queue) {
  return make_queues("hsa_queue_create", agent, [&] {
    return real::hsa_queue_create(agent, size, type, callback, data, private_segment_size,
                                  group_segment_size, queue);
  });
}

hsa_status_t hsa_amd_queue_create(hsa_agent_t agent, hsa_amd_queue_create_desc_t* descriptions,
                                  uint32_t count) {
  return make_queues("hsa_amd_queue_create", agent,
                     [&] { return real::hsa_amd_queue_create(agent, descriptions, count); });
}

hsa_status_t hsa_queue_destroy(hsa_queue_t* queue) {
  return give_overhead_back([&] { return real::hsa_queue_destroy(queue); });
}

hsa_status_t hsa_amd_counted_queue_acquire(hsa_agent_t agent, int type, int priority,
                                           void* callback, void* data, uint64_t flags,
                                           hsa_queue_t** queue) {
  return make_queues("hsa_amd_counted_queue_acquire", agent, [&] {
    return real::hsa_amd_counted_queue_acquire(agent, type, priority, callback, data, flags, queue);
  });
}

hsa_status_t hsa_amd_counted_queue_release(hsa_queue_t* queue) {
  return give_overhead_back([&] { return real::hsa_amd_counted_queue_release(queue); });
}

hsa_status_t hsa_amd_sdma_queue_create(hsa_agent_t agent, uint32_t flags, int engine, uint64_t last,
                                       void* queue) {
  return make_queues("hsa_amd_sdma_queue_create", agent, [&] {
    return real::hsa_amd_sdma_queue_create(agent, flags, engine, last, queue);
  });
}

hsa_status_t hsa_amd_sdma_queue_destroy(uint64_t queue) {
  return give_overhead_back([&] { return real::hsa_amd_sdma_queue_destroy(queue); });
}

}  // namespace fracgpu::hsa
