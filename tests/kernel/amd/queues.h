// The device: a thread in each process that consumes packets from its queues. Copy engines copy and
// fill memory. Kernels are completed without being run.
#pragma once

#include <cstdint>
#include <list>
#include <mutex>

#include "events.h"

namespace kfd {

struct Queue {
  uint32_t id = 0;
  bool aql = false;  // HSA packets; otherwise the copy engine's
  uint64_t ring = 0, ring_bytes = 0;
  uint64_t read_pointer = 0, write_pointer = 0;  // their addresses
  bool wants_scratch = false;  // the runtime was asked for scratch for the next kernel
  bool gives_scratch_back = false;
  uint32_t traced = 0;   // header of the current packet, for the trace
  bool stopped = false;  // after an invalid packet, or when its memory is unmapped
};

// Processes one packet. `why` receives what a blocked packet waits for, or why it is invalid.
enum class Step { kDone, kEmpty, kBlocked, kBroken };
struct Why {
  char text[80] = "";
};
Step step_aql(Queue& queue, Events& events, Why& why);
Step step_sdma(Queue& queue, Events& events, Why& why);

class Queues {
 public:
  explicit Queues(Events* events) : events_(events) {}
  // Where to publish which queue is blocked, and by what.
  void report_to(char* where, size_t bytes);

  void add(const Queue& queue);
  bool remove(uint32_t id);
  // A ring of size 0 pauses the queue.
  bool update(uint32_t id, uint64_t ring, uint64_t bytes);
  // Stops queues whose memory the program unmaps.
  void forget_memory(uint64_t start, uint64_t bytes);

 private:
  static void* run(void* self);
  bool step_all();
  Step step(Queue& queue);

  std::mutex mutex_;
  std::list<Queue> queues_;
  bool running_ = false;
  Events* const events_;
  char* blocked_ = nullptr;
  size_t blocked_bytes_ = 0;
};

uint64_t gpu_clock();  // 100 MHz
bool traces();         // if SIMULATED_KFD_TRACE is set: print each ioctl and packet

}  // namespace kfd
