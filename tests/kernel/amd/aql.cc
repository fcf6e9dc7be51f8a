// HSA packets (Architected Queuing Language), by HSA's public headers. A kernel is completed
// without being run, once the runtime has provided the scratch that it needs.
#include <hsa/amd_hsa_queue.h>
#include <hsa/amd_hsa_signal.h>
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

#include <cstddef>
#include <cstdio>

#include "queues.h"
#include "user_memory.h"

namespace kfd {
namespace {

// What the packet processor stores to a queue's inactive signal. ROCr's queue handler
// (amd_aql_queue.cpp) reads these bits.
constexpr int64_t kNeedsScratch = 1, kGivesScratchBack = 512;

union Packet {
  uint16_t header;
  hsa_kernel_dispatch_packet_t dispatch;
  hsa_agent_dispatch_packet_t agent_dispatch;
  hsa_barrier_and_packet_t barrier;  // barrier-or has the same layout
  hsa_amd_barrier_value_packet_t barrier_value;
};
static_assert(sizeof(Packet) == 64);
static_assert(offsetof(hsa_kernel_dispatch_packet_t, completion_signal) == 56 &&
              offsetof(hsa_barrier_and_packet_t, completion_signal) == 56 &&
              offsetof(hsa_amd_barrier_value_packet_t, completion_signal) == 56);

amd_signal_t* signal_at(uint64_t handle) {
  return reinterpret_cast<amd_signal_t*>(handle);
}

bool is_signal(uint64_t handle) {
  return is_readable(handle, sizeof(amd_signal_t));
}

int64_t value_of(uint64_t signal) {
  return shared_with_program<int64_t>(signal + offsetof(amd_signal_t, value)).load();
}

void interrupt(Events& events, uint64_t mailbox, uint32_t event) {
  if (mailbox == 0) return;
  const uint64_t number = event;
  copy_to_user(mailbox, &number, sizeof number);
  events.set(event);
}

void complete(Events& events, uint64_t signal, uint64_t begun) {
  if (signal == 0) return;
  amd_signal_t* const s = signal_at(signal);
  s->start_ts = begun;
  s->end_ts = gpu_clock();
  // The program may destroy the signal once it sees the value.
  const uint64_t mailbox = s->event_mailbox_ptr;
  const uint32_t event = s->event_id;
  shared_with_program<int64_t>(signal + offsetof(amd_signal_t, value)).fetch_sub(1);
  interrupt(events, mailbox, event);
}

void raise_inactive(Events& events, const amd_queue_t& queue, int64_t reason) {
  const uint64_t signal = queue.queue_inactive_signal.handle;
  if (!is_signal(signal)) return;
  shared_with_program<int64_t>(signal + offsetof(amd_signal_t, value)).fetch_or(reason);
  interrupt(events, signal_at(signal)->event_mailbox_ptr, signal_at(signal)->event_id);
}

Step blocked_by(Why& why, const char* what, uint64_t signal) {
  std::snprintf(why.text, sizeof why.text, "%s: signal %#lx is %ld", what, signal,
                value_of(signal));
  return Step::kBlocked;
}

Step broken(Why& why, const char* what, uint64_t address) {
  std::snprintf(why.text, sizeof why.text, "%s at %#lx", what, address);
  return Step::kBroken;
}

// Asks the runtime for scratch if the kernel needs more than the queue has.
Step provide_scratch(Queue& queue, amd_queue_t& amd, const hsa_kernel_dispatch_packet_t& packet,
                     Events& events, Why& why) {
  const uint64_t inactive = amd.queue_inactive_signal.handle;
  if (queue.wants_scratch) {
    if (value_of(inactive) != 0) return blocked_by(why, "scratch", inactive);
    queue.wants_scratch = false;
  } else if (packet.private_segment_size >
                 shared_with_program<uint32_t>(
                     reinterpret_cast<uint64_t>(&amd.scratch_wave64_lane_byte_size))
                     .load() &&
             is_signal(inactive)) {
    queue.wants_scratch = true;
    raise_inactive(events, amd, kNeedsScratch);
    return blocked_by(why, "scratch", inactive);
  }
  return Step::kDone;
}

// Waits until all or any of up to five signals are 0.
Step check_barrier(const hsa_barrier_and_packet_t& packet, bool all_needed, Why& why) {
  uint64_t waits_for = 0;
  bool any_zero = false, none = true;
  for (const hsa_signal_t dependency : packet.dep_signal) {
    if (dependency.handle == 0) continue;
    if (!is_signal(dependency.handle)) return broken(why, "no signal", dependency.handle);
    none = false;
    if (value_of(dependency.handle) == 0) {
      any_zero = true;
    } else {
      waits_for = dependency.handle;
    }
  }
  if (none || waits_for == 0 || (!all_needed && any_zero)) return Step::kDone;
  return blocked_by(why, "a barrier", waits_for);
}

Step check_barrier_value(const hsa_amd_barrier_value_packet_t& packet, Why& why) {
  const uint64_t signal = packet.signal.handle;
  if (signal == 0) return Step::kDone;
  if (!is_signal(signal)) return broken(why, "no signal", signal);
  const int64_t now = value_of(signal) & packet.mask;
  const bool holds = packet.cond == HSA_SIGNAL_CONDITION_EQ   ? now == packet.value
                     : packet.cond == HSA_SIGNAL_CONDITION_NE ? now != packet.value
                     : packet.cond == HSA_SIGNAL_CONDITION_LT ? now < packet.value
                                                              : now >= packet.value;
  return holds ? Step::kDone : blocked_by(why, "a barrier on a value", signal);
}

}  // namespace

Step step_aql(Queue& queue, Events& events, Why& why) {
  const auto read_index = shared_with_program<uint64_t>(queue.read_pointer);
  const uint64_t read = read_index.load();
  if (read >= shared_with_program<uint64_t>(queue.write_pointer).load()) return Step::kEmpty;
  const uint64_t address = queue.ring + read * sizeof(Packet) % queue.ring_bytes;
  if (!is_readable(address, sizeof(Packet))) return broken(why, "no packet", address);
  const auto header = shared_with_program<uint16_t>(address);
  const unsigned type = header.load() & 0xff;
  if (type == HSA_PACKET_TYPE_INVALID) return Step::kEmpty;  // reserved but not written yet
  queue.traced = type;
  const Packet& packet = *reinterpret_cast<const Packet*>(address);
  amd_queue_t& amd =
      *reinterpret_cast<amd_queue_t*>(queue.read_pointer - offsetof(amd_queue_t, read_dispatch_id));
  if (queue.gives_scratch_back) {
    if (value_of(amd.queue_inactive_signal.handle) != 0) {
      return blocked_by(why, "scratch to be taken back", amd.queue_inactive_signal.handle);
    }
    queue.gives_scratch_back = false;
  }

  const uint64_t begun = gpu_clock();
  Step ready = Step::kDone;
  switch (type) {
    case HSA_PACKET_TYPE_KERNEL_DISPATCH:
      ready = provide_scratch(queue, amd, packet.dispatch, events, why);
      break;
    case HSA_PACKET_TYPE_BARRIER_AND:
    case HSA_PACKET_TYPE_BARRIER_OR:
      ready = check_barrier(packet.barrier, type == HSA_PACKET_TYPE_BARRIER_AND, why);
      break;
    case HSA_PACKET_TYPE_VENDOR_SPECIFIC:
      // Other formats only control caches.
      if (packet.barrier_value.header.AmdFormat == HSA_AMD_PACKET_TYPE_BARRIER_VALUE) {
        ready = check_barrier_value(packet.barrier_value, why);
      }
      break;
    default:
      return broken(why, "a packet of an unknown type", address);
  }
  if (ready != Step::kDone) return ready;

  const uint64_t signal = packet.dispatch.completion_signal.handle;
  if (signal != 0 && !is_signal(signal)) return broken(why, "no completion signal", signal);
  header.store(HSA_PACKET_TYPE_INVALID);
  read_index.store(read + 1);
  if (type == HSA_PACKET_TYPE_KERNEL_DISPATCH &&
      (amd.queue_properties & AMD_QUEUE_PROPERTIES_USE_SCRATCH_ONCE) != 0) {
    raise_inactive(events, amd, kGivesScratchBack);
    queue.gives_scratch_back = true;
  }
  complete(events, signal, begun);
  return Step::kDone;
}

}  // namespace kfd
