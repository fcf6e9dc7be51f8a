// Queues. The runtime requests a queue's memory from the kernel driver, and it is charged there
// (kernel.h). The hooks here add the names for reports, and release what belongs to a queue. If
// those requests are not watched, an estimate must fit under the cap, and the kernel's count
// corrects it afterwards.
#include "hooks/hsa/kernel.h"
#include "hooks/hsa/overhead_call.h"
#include "hooks/usage/kfd_topology.h"

namespace fracgpu::hsa {
namespace {

// An estimate of what the queues of one call take. All in bytes.
struct Guess {
  uint64_t queues = 1;
  uint64_t per_thread = 0;  // private memory that is named; 0 if a kernel takes it later
  uint64_t packets = 0;     // if they are in device memory

  // A save area holds the registers and local memory of each compute unit: at most 0.9 MiB on the
  // devices that libhsakmt knows (src/queues.c), and 0.6 on MI200 and MI300. Scratch memory is for
  // 32 waves of 64 threads on each (ROCr, GpuAgent::QueueCreate).
  uint64_t units(const char* device_key) const {
    constexpr uint64_t kSaved = 1u << 20, kOther = 128u << 10, kThreads = 32 * 64;
    uint64_t simds = 0, simds_per_unit = 0;
    const kfd::Property wanted[] = {{"simd_count", &simds}, {"simd_per_cu", &simds_per_unit}};
    const bool told = kfd::read_properties(device_key, wanted) && simds_per_unit > 0;
    const uint64_t compute_units = told ? simds / simds_per_unit : 0;
    return layout::units_for(queues * (compute_units * kSaved + kOther) +
                             compute_units * kThreads * per_thread + packets);
  }
};

uint64_t named(uint32_t private_segment_size) {
  constexpr uint32_t kNone = UINT32_MAX;
  return private_segment_size != kNone ? private_segment_size : 0;
}

// Calls `make()`, which makes queues of the agent for the program's call `api`. `unmake()` undoes
// it.
template <typename Make, typename Unmake>
hsa_status_t make_queues(const char* api, hsa_agent_t agent, const Guess& guess, Make make,
                         Unmake unmake) {
  if (!kernel_calls_are_watched()) {
    const auto reserve = [&](Process& process, int device_index, const char* name) {
      const char* const key = process.ledger.map()->devices[device_index].key;
      return OverheadReservation(process, device_index, guess.units(key), name);
    };
    return take_overhead(api, agent, reserve, make, unmake);
  }
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
  return make_queues(
      "hsa_queue_create", agent, {.per_thread = named(private_segment_size)},
      [&] {
        return real::hsa_queue_create(agent, size, type, callback, data, private_segment_size,
                                      group_segment_size, queue);
      },
      [&] { real::hsa_queue_destroy(*queue); });
}

hsa_status_t hsa_amd_queue_create(hsa_agent_t agent, hsa_amd_queue_create_desc_t* descriptions,
                                  uint32_t count) {
  const uint32_t described = descriptions != nullptr ? count : 0;
  Guess guess{.queues = described};
  for (uint32_t i = 0; i < described; ++i) {
    const hsa_amd_queue_create_desc_t& wanted = descriptions[i];
    if (wanted.flags != 0) guess.packets += wanted.queue_size_bytes;
    if (wanted.engine_type == kComputeQueue)
      guess.per_thread += named(wanted.engine.compute.private_segment_size);
  }
  return make_queues(
      "hsa_amd_queue_create", agent, guess,
      [&] { return real::hsa_amd_queue_create(agent, descriptions, count); },
      [&] {
        for (uint32_t i = 0; i < described; ++i) real::hsa_queue_destroy(descriptions[i].queue);
      });
}

hsa_status_t hsa_queue_destroy(hsa_queue_t* queue) {
  return give_overhead_back([&] { return real::hsa_queue_destroy(queue); });
}

hsa_status_t hsa_amd_counted_queue_acquire(hsa_agent_t agent, int type, int priority,
                                           void* callback, void* data, uint64_t flags,
                                           hsa_queue_t** queue) {
  return make_queues(
      "hsa_amd_counted_queue_acquire", agent, {},
      [&] {
        return real::hsa_amd_counted_queue_acquire(agent, type, priority, callback, data, flags,
                                                   queue);
      },
      [&] { real::hsa_amd_counted_queue_release(*queue); });
}

hsa_status_t hsa_amd_counted_queue_release(hsa_queue_t* queue) {
  return give_overhead_back([&] { return real::hsa_amd_counted_queue_release(queue); });
}

hsa_status_t hsa_amd_sdma_queue_create(hsa_agent_t agent, uint32_t flags, int engine, uint64_t last,
                                       void* queue) {
  // There is nothing to undo: the queue takes far less than the reserved estimate.
  return make_queues(
      "hsa_amd_sdma_queue_create", agent, {},
      [&] { return real::hsa_amd_sdma_queue_create(agent, flags, engine, last, queue); }, [] {});
}

hsa_status_t hsa_amd_sdma_queue_destroy(uint64_t queue) {
  return give_overhead_back([&] { return real::hsa_amd_sdma_queue_destroy(queue); });
}

}  // namespace fracgpu::hsa
