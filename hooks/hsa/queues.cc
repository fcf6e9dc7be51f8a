// Queues. What the runtime takes for one follows from the device, so that there is room for it
// before it is taken; the kernel's count corrects it afterwards. A runtime above that is refused
// one (HIP's) asks for smaller ones, which take as much, and then says so to the program.
#include <algorithm>

#include "hooks/hsa/overhead_call.h"
#include "hooks/usage/kfd_queues.h"

namespace fracgpu::hsa {
namespace {

// For each queue beside what is known: four times the largest end-of-pipe buffer, which is 32 KiB
// on gfx802 and 4 KiB on all others (public source: the kernel's kfd_queue.c). Corrected by KFD's
// count.
constexpr uint64_t kEstimatedQueue = 128u << 10;

// What queues are made of, all of one call together.
struct Plan {
  uint32_t queues = 1;
  uint32_t compute = 1;        // of them: those that copy only have no save area
  uint64_t private_bytes = 0;  // of each thread
  uint64_t packet_bytes = 0;   // of packets, where these are device memory

  uint64_t units(const char* device_key) const {
    return layout::units_for(queues * kEstimatedQueue + compute * kfd::save_area_bytes(device_key) +
                             kfd::scratch_bytes(device_key, private_bytes) + packet_bytes);
  }
};

// Scratch memory is taken at once for a size that is named; for none, when a kernel needs it.
uint64_t private_bytes(uint32_t asked) {
  constexpr uint32_t kNone = UINT32_MAX;
  return asked != kNone ? (asked + uint64_t{15}) / 16 * 16 : 0;
}

template <typename Make, typename Unmake>
hsa_status_t make_queues(const char* api, hsa_agent_t agent, const Plan& plan, Make make,
                         Unmake unmake) {
  return take_overhead(
      api, agent,
      [&](Process& process, int device_index, const char* name) {
        const char* const key = process.ledger.map()->devices[device_index].key;
        return OverheadReservation(process, device_index, plan.units(key), name);
      },
      make, unmake);
}

Plan plan_of(const hsa_amd_queue_create_desc_t* descriptions, uint32_t count) {
  Plan plan{.queues = count, .compute = 0};
  for (uint32_t i = 0; i < count; ++i) {
    const hsa_amd_queue_create_desc_t& wanted = descriptions[i];
    if (wanted.flags != 0) plan.packet_bytes += wanted.queue_size_bytes;
    if (wanted.engine_type != kComputeQueue) continue;
    ++plan.compute;
    plan.private_bytes += private_bytes(wanted.engine.compute.private_segment_size);
  }
  return plan;
}

}  // namespace

hsa_status_t hsa_queue_create(hsa_agent_t agent, uint32_t size, uint32_t type, void* callback,
                              void* data, uint32_t private_segment_size,
                              uint32_t group_segment_size, hsa_queue_t** queue) {
  return make_queues(
      "hsa_queue_create", agent, {.private_bytes = private_bytes(private_segment_size)},
      [&] {
        return real::hsa_queue_create(agent, size, type, callback, data, private_segment_size,
                                      group_segment_size, queue);
      },
      [&] { real::hsa_queue_destroy(*queue); });
}

// Where one of several cannot be made, the others are there all the same.
hsa_status_t hsa_amd_queue_create(hsa_agent_t agent, hsa_amd_queue_create_desc_t* descriptions,
                                  uint32_t count) {
  const auto create = [&] { return real::hsa_amd_queue_create(agent, descriptions, count); };
  if (descriptions == nullptr || count == 0) return create();
  for (uint32_t i = 0; i < count; ++i) descriptions[i].queue = nullptr;
  hsa_status_t result = kSuccess;
  const hsa_status_t capped = make_queues(
      "hsa_amd_queue_create", agent, plan_of(descriptions, count),
      [&] {
        result = create();
        const bool any = std::any_of(descriptions, descriptions + count,
                                     [](const auto& made) { return made.queue != nullptr; });
        return any ? kSuccess : result;
      },
      [&] {
        for (uint32_t i = 0; i < count; ++i) {
          if (descriptions[i].queue != nullptr) real::hsa_queue_destroy(descriptions[i].queue);
          descriptions[i].queue = nullptr;
        }
      });
  return capped != kSuccess ? capped : result;
}

hsa_status_t hsa_queue_destroy(hsa_queue_t* queue) {
  return give_overhead_back([&] { return real::hsa_queue_destroy(queue); });
}

// The runtime makes a few, and hands the same ones out again after that. Which it will do is not
// known before, so there must be room for one.
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
  // Nothing to undo: what it takes is far less than what was found room for.
  return make_queues(
      "hsa_amd_sdma_queue_create", agent, {.compute = 0},
      [&] { return real::hsa_amd_sdma_queue_create(agent, flags, engine, last, queue); }, [] {});
}

hsa_status_t hsa_amd_sdma_queue_destroy(uint64_t queue) {
  return give_overhead_back([&] { return real::hsa_amd_sdma_queue_destroy(queue); });
}

}  // namespace fracgpu::hsa
