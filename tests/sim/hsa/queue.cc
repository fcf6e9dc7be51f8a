// Queues of packets in the vendor's layout (amd_hsa_queue.h), each with a thread in the place of
// the device's packet processor. It waits where a packet says so and completes the packets'
// signals; kernels are not run. What a queue takes of the device is in save_area.h.
#include "sim/hsa/queue.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <new>

#include "sim/hsa/kernel.h"
#include "sim/hsa/save_area.h"
#include "sim/hsa/signal.h"

using sim::Agent;
using sim::Guard;
using sim::Runtime;

namespace sim {
namespace {

constexpr uint32_t kMaxPackets = 0x20000;
constexpr size_t kPacketBytes = 64;
constexpr uint32_t kMostPerThread = 262128;  // bytes of private memory
constexpr uint8_t kBarrierValueFormat = 2;   // of vendor packets: AMD_AQL_FORMAT_BARRIER_VALUE

struct alignas(64) Packet {
  uint16_t header;
  uint16_t rest;  // low byte of a vendor packet's: its format
  uint32_t reserved;
  hsa_signal_t awaited[5];  // of the two barriers between packets
  uint64_t more;
  hsa_signal_t completion;
};
static_assert(sizeof(Packet) == kPacketBytes && offsetof(Packet, completion) == 56 &&
              offsetof(Packet, awaited) == offsetof(hsa_barrier_and_packet_t, dep_signal) &&
              sizeof(hsa_amd_barrier_value_packet_t) == kPacketBytes);

// What a queue has of the device.
struct Taken {
  KernelHandle scratch = 0, end_of_pipe = 0;
  SaveArea save_area;
  uint32_t number = 0;
};

// The structure of later releases is larger than amd_queue_t, so there is room behind it.
struct alignas(4096) Queue {
  amd_queue_t amd;
  char later[4096 - sizeof(amd_queue_t)];
  Agent* agent;
  Packet* ring;
  Taken taken;
  std::atomic<bool> ending;
  pthread_t thread;

  std::atomic_ref<uint64_t> read_index() {
    return std::atomic_ref<uint64_t>(const_cast<uint64_t&>(amd.read_dispatch_id));
  }
  std::atomic_ref<uint64_t> write_index() {
    return std::atomic_ref<uint64_t>(const_cast<uint64_t&>(amd.write_dispatch_id));
  }
};

std::mutex& list_mutex() {
  static std::mutex* const mutex = new std::mutex;
  return *mutex;
}
std::vector<Queue*>& queues() {
  static auto* const list = new std::vector<Queue*>;
  return *list;
}

uint8_t type_of(uint16_t header) {
  return static_cast<uint8_t>(header >> HSA_PACKET_HEADER_TYPE);
}

bool zero(hsa_signal_t signal) {
  return value_of(signal).load() == 0;
}

// May the packet be processed now, as far as signals are concerned?
bool due(const Packet& packet) {
  switch (type_of(packet.header)) {
    case HSA_PACKET_TYPE_BARRIER_AND:
      for (const hsa_signal_t signal : packet.awaited) {
        if (signal.handle != 0 && !zero(signal)) return false;
      }
      return true;
    case HSA_PACKET_TYPE_BARRIER_OR: {
      bool any_named = false;
      for (const hsa_signal_t signal : packet.awaited) {
        if (signal.handle != 0 && zero(signal)) return true;
        any_named = any_named || signal.handle != 0;
      }
      return !any_named;
    }
    case HSA_PACKET_TYPE_VENDOR_SPECIFIC: {
      if ((packet.rest & 0xff) != kBarrierValueFormat) return true;
      hsa_amd_barrier_value_packet_t barrier;
      std::memcpy(&barrier, &packet, sizeof barrier);
      return barrier.signal.handle == 0 ||
             satisfied(value_of(barrier.signal).load() & barrier.mask, barrier.cond, barrier.value);
    }
    default:
      return true;
  }
}

void process_packets(void* given) {
  auto& queue = *static_cast<Queue*>(given);
  const uint32_t mask = queue.amd.hsa_queue.size - 1;
  for (;;) {
    const uint64_t index = queue.read_index().load();
    Packet& packet = queue.ring[index & mask];
    std::atomic_ref<uint16_t> header(packet.header);
    wait_for_signals(kForever, [&] {
      return queue.ending.load() ||
             (type_of(header.load()) != HSA_PACKET_TYPE_INVALID && due(packet));
    });
    if (queue.ending.load()) return;
    const uint64_t now = timestamp();
    const hsa_signal_t completion = packet.completion;
    header.store(HSA_PACKET_TYPE_INVALID);
    queue.read_index().store(index + 1);
    complete(completion, now, timestamp());
  }
}

void give_back(const Taken& taken) {
  return_to_device(taken.scratch);
  return_to_device(taken.end_of_pipe);
  unmap_save_area(taken.save_area);
}

// In the order of ROCr and libhsakmt.
bool take(const Agent& agent, uint64_t scratch, Taken* out) {
  Taken taken;
  const uint64_t save_area = save_area_bytes(Runtime::get().row(agent));
  if ((scratch != 0 && (taken.scratch = take_from_device(agent, scratch)) == 0) ||
      (taken.end_of_pipe = take_from_device(agent, kEndOfPipe)) == 0) {
    give_back(taken);
    return false;
  }
  if (save_area != 0) taken.save_area = map_save_area(agent, save_area);
  taken.number = connect_queue(agent, taken.save_area);
  *out = taken;
  return true;
}

// The runtime's lock is held by whoever calls.
struct OwnQueue {
  Taken taken;
  KernelHandle reserved = 0;
};
std::map<const Agent*, OwnQueue>& own_queues() {
  static auto* const list = new std::map<const Agent*, OwnQueue>;
  return *list;
}

bool ensure_own_queue_locked(const Agent& agent) {
  constexpr uint64_t kReserved = 140 << 20;
  static const bool wanted = std::getenv("FRACGPU_SIM_HSA_OWN_QUEUE") != nullptr;
  if (!wanted || !agent.gpu() || own_queues().contains(&agent)) return true;
  OwnQueue own;
  if (!take(agent, 0, &own.taken)) return false;
  const bool reserves = !is_before_5_7() && available_memory(agent) > 8 * kReserved;
  if (reserves && (own.reserved = take_from_device(agent, kReserved)) == 0) {
    disconnect_queue(own.taken.number);
    give_back(own.taken);
    return false;
  }
  own_queues()[&agent] = own;
  return true;
}

hsa_status_t create(Agent* agent, uint32_t size, hsa_queue_type32_t type, uint32_t per_thread,
                    hsa_queue_t** out) {
  Runtime& runtime = Runtime::get();
  const Guard guard(runtime.lock());
  const DeviceRow& row = runtime.row(*agent);
  void* ring = mmap(nullptr, size * kPacketBytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (ring == MAP_FAILED) return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  Taken taken;
  if (!ensure_own_queue_locked(*agent) || !take(*agent, scratch_bytes(row, per_thread), &taken)) {
    munmap(ring, size * kPacketBytes);
    return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  }
  static std::atomic<uint64_t> next_id{1};
  auto* queue = new Queue{};
  queue->agent = agent;
  queue->taken = taken;
  queue->ring = static_cast<Packet*>(ring);
  for (uint32_t i = 0; i < size; ++i) queue->ring[i].header = HSA_PACKET_TYPE_INVALID;
  hsa_queue_t& head = queue->amd.hsa_queue;
  head.type = type;
  head.features = HSA_QUEUE_FEATURE_KERNEL_DISPATCH;
  head.base_address = ring;
  head.doorbell_signal = make_signal(-1);
  head.size = size;
  head.id = next_id.fetch_add(1);
  queue->amd.read_dispatch_id_field_base_byte_offset = offsetof(amd_queue_t, read_dispatch_id);
  queue->amd.max_cu_id = row.multiprocessors - 1;
  start_thread(process_packets, queue, &queue->thread);
  const Guard listing(list_mutex());
  queues().push_back(queue);
  *out = &head;
  return HSA_STATUS_SUCCESS;
}

// The caller has taken it from the list.
void end(Queue* queue) {
  queue->ending.store(true);
  signals_changed();
  pthread_join(queue->thread, nullptr);
  drop_signal(queue->amd.hsa_queue.doorbell_signal);
  {
    const Guard guard(Runtime::get().lock());
    disconnect_queue(queue->taken.number);
    give_back(queue->taken);
  }
  munmap(queue->ring, queue->amd.hsa_queue.size * kPacketBytes);
  delete queue;
}

bool unlist(const hsa_queue_t* given, Queue** out) {
  const Guard guard(list_mutex());
  auto& list = queues();
  for (auto at = list.begin(); at != list.end(); ++at) {
    if (&(*at)->amd.hsa_queue != given) continue;
    *out = *at;
    list.erase(at);
    return true;
  }
  return false;
}

bool known(const hsa_queue_t* given) {
  const Guard guard(list_mutex());
  for (const Queue* queue : queues()) {
    if (&queue->amd.hsa_queue == given) return true;
  }
  return false;
}

Queue& of(const hsa_queue_t* given) {
  return *reinterpret_cast<Queue*>(const_cast<hsa_queue_t*>(given));
}

}  // namespace

hsa_status_t make_queue(hsa_agent_t given, uint32_t size, hsa_queue_type32_t type,
                        uint32_t private_segment, hsa_queue_t** out) {
  if (out == nullptr || size == 0 || (size & (size - 1)) != 0 || size > kMaxPackets ||
      type > HSA_QUEUE_TYPE_COOPERATIVE)
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  Agent* agent = Runtime::get().find(given);
  if (agent == nullptr) return HSA_STATUS_ERROR_INVALID_AGENT;
  if (!agent->gpu()) return HSA_STATUS_ERROR_INVALID_QUEUE_CREATION;
  // Those that name no size get their memory when a kernel needs it.
  const uint32_t per_thread = private_segment == UINT32_MAX ? 0 : private_segment;
  if (per_thread > kMostPerThread) return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  return create(agent, size, type, per_thread, out);
}

bool end_queue(const hsa_queue_t* given) {
  Queue* queue = nullptr;
  if (!unlist(given, &queue)) return false;
  end(queue);
  return true;
}

bool ensure_own_queue(const Agent& agent) {
  const Guard guard(Runtime::get().lock());
  return ensure_own_queue_locked(agent);
}

void end_all_queues() {
  {
    const Guard guard(Runtime::get().lock());
    for (const auto& [agent, own] : own_queues()) {
      return_to_device(own.reserved);
      disconnect_queue(own.taken.number);
      give_back(own.taken);
    }
    own_queues().clear();
  }
  for (;;) {
    Queue* queue = nullptr;
    {
      const Guard guard(list_mutex());
      if (queues().empty()) return;
      queue = queues().back();
      queues().pop_back();
    }
    end(queue);
  }
}

}  // namespace sim

SIM_API hsa_status_t hsa_queue_create(hsa_agent_t agent, uint32_t size, hsa_queue_type32_t type,
                                      void (*)(hsa_status_t, hsa_queue_t*, void*), void*,
                                      uint32_t private_segment, uint32_t /*group*/,
                                      hsa_queue_t** out) {
  SIM_CALL(hsa_queue_create);
  return sim::make_queue(agent, size, type, private_segment, out);
}

SIM_API hsa_status_t hsa_queue_destroy(hsa_queue_t* queue) {
  SIM_CALL(hsa_queue_destroy);
  if (queue == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  return sim::end_queue(queue) ? HSA_STATUS_SUCCESS : HSA_STATUS_ERROR_INVALID_QUEUE;
}

#define SIM_QUEUE_CALL(name, check, ...)                                                       \
  SIM_API hsa_status_t name(__VA_ARGS__) {                                                     \
    SIM_CALL(name);                                                                            \
    return sim::known(queue) && (check) ? HSA_STATUS_SUCCESS : HSA_STATUS_ERROR_INVALID_QUEUE; \
  }
SIM_QUEUE_CALL(hsa_queue_inactivate, true, hsa_queue_t* queue)
SIM_QUEUE_CALL(hsa_amd_queue_set_priority, true, hsa_queue_t* queue, hsa_amd_queue_priority_t)
SIM_QUEUE_CALL(hsa_amd_queue_cu_set_mask, true, const hsa_queue_t* queue, uint32_t, const uint32_t*)
SIM_QUEUE_CALL(hsa_amd_profiling_set_profiler_enabled, true, hsa_queue_t* queue, int)

SIM_API hsa_status_t hsa_amd_queue_cu_get_mask(const hsa_queue_t* queue, uint32_t bits,
                                               uint32_t* mask) {
  SIM_CALL(hsa_amd_queue_cu_get_mask);
  if (!sim::known(queue)) return HSA_STATUS_ERROR_INVALID_QUEUE;
  if (mask == nullptr || bits == 0 || bits % 32 != 0) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  std::memset(mask, 0xff, bits / 8);
  return HSA_STATUS_SUCCESS;
}

// Since ROCm 6.2: attribute 0 is the agent, 1 a number for the doorbell.
SIM_API hsa_status_t hsa_amd_queue_get_info(hsa_queue_t* queue, uint32_t attribute, void* value) {
  SIM_CALL(hsa_amd_queue_get_info);
  if (value == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  if (!sim::known(queue)) return HSA_STATUS_ERROR_INVALID_QUEUE;
  if (attribute > 1) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const uint64_t answer = attribute == 0 ? sim::handle(*sim::of(queue).agent).handle : queue->id;
  std::memcpy(value, &answer, sizeof answer);
  return HSA_STATUS_SUCCESS;
}

// Every order of memory access is the strongest one here.
#define SIM_LOAD_INDEX(order)                                                     \
  SIM_API uint64_t hsa_queue_load_read_index_##order(const hsa_queue_t* queue) {  \
    return sim::of(queue).read_index().load();                                    \
  }                                                                               \
  SIM_API uint64_t hsa_queue_load_write_index_##order(const hsa_queue_t* queue) { \
    return sim::of(queue).write_index().load();                                   \
  }
SIM_LOAD_INDEX(relaxed)
SIM_LOAD_INDEX(acquire)
SIM_LOAD_INDEX(scacquire)

#define SIM_STORE_INDEX(order)                                                                 \
  SIM_API void hsa_queue_store_read_index_##order(const hsa_queue_t* queue, uint64_t value) {  \
    sim::of(queue).read_index().store(value);                                                  \
  }                                                                                            \
  SIM_API void hsa_queue_store_write_index_##order(const hsa_queue_t* queue, uint64_t value) { \
    sim::of(queue).write_index().store(value);                                                 \
  }
SIM_STORE_INDEX(relaxed)
SIM_STORE_INDEX(release)
SIM_STORE_INDEX(screlease)

#define SIM_UPDATE_INDEX(order)                                                                   \
  SIM_API uint64_t hsa_queue_add_write_index_##order(const hsa_queue_t* queue, uint64_t by) {     \
    return sim::of(queue).write_index().fetch_add(by);                                            \
  }                                                                                               \
  SIM_API uint64_t hsa_queue_cas_write_index_##order(const hsa_queue_t* queue, uint64_t expected, \
                                                     uint64_t value) {                            \
    sim::of(queue).write_index().compare_exchange_strong(expected, value);                        \
    return expected;                                                                              \
  }
SIM_UPDATE_INDEX(relaxed)
SIM_UPDATE_INDEX(acquire)
SIM_UPDATE_INDEX(scacquire)
SIM_UPDATE_INDEX(release)
SIM_UPDATE_INDEX(screlease)
SIM_UPDATE_INDEX(acq_rel)
SIM_UPDATE_INDEX(scacq_screl)
