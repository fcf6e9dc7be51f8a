// The device: a thread that takes packets from the queues of this process. Kernels are completed
// and not run; copies and fills of the copy engines are done.
#pragma once

#include <cstdint>
#include <list>
#include <mutex>

#include "events.h"

namespace kfd {

struct Queue {
  uint32_t id = 0;
  bool aql = false;  // packets of HSA, and not of the copy engine
  uint64_t ring = 0, ring_bytes = 0;
  uint64_t read_pointer = 0, write_pointer = 0;  // where they are
  bool wants_scratch = false;  // the runtime was asked for memory of the next kernel's threads
  bool gives_scratch_back = false;
  uint32_t traced = 0;   // the beginning of the packet that is being done
  bool stopped = false;  // by a packet that no device would take
};

// One packet: done, or not there yet, or waiting; what it waits for is written to `why`.
enum class Step { kDone, kEmpty, kBlocked, kBroken };
struct Why {
  char text[80] = "";
};
Step step_aql(Queue& queue, Events& events, Why& why);
Step step_sdma(Queue& queue, Events& events, Why& why);

class Queues {
 public:
  explicit Queues(Events* events) : events_(events) {}
  // Where a queue that stands still is shown.
  void report_to(char* where, size_t bytes);

  void add(const Queue& queue);
  bool remove(uint32_t id);
  // A ring of size 0 stands still.
  bool update(uint32_t id, uint64_t ring, uint64_t bytes);
  // The program unmaps memory: queues in it stop.
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
bool traces();         // SIMULATED_KFD_TRACE: each ioctl and each packet is printed

}  // namespace kfd
