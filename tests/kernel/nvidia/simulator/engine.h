// The engine: a thread that does what channels are told. It looks at each channel's GP_PUT, walks
// the entries and the push buffers behind them, and carries out semaphores, copies, fills and
// inline data. Kernels complete without running.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "driver_headers.h"

namespace rmsim {

struct Channel {
  uint32_t id, client, handle;
  uint64_t gpfifo;   // address of the ring of entries
  uint32_t entries;  // of the ring
  volatile Nvc56fControl* control;

  // What the engine keeps of it.
  using Registers = std::map<uint32_t, uint32_t>;
  uint32_t get = 0;
  Registers host;  // methods below NVC56F_NUMBER_OF_SUBCHANNELS' own
  Registers methods[NVC56F_NUMBER_OF_SUBCHANNELS];
  uint32_t classes[NVC56F_NUMBER_OF_SUBCHANNELS] = {};
  std::vector<uint32_t> push;  // the push buffer that it is in, if it waits for a semaphore there
  size_t position = 0;
  uint32_t word = 0;  // of the method's data
  bool waits = false;
  uint32_t inline_offset = 0;
};

namespace engine {
void add(Channel* channel);
void remove(Channel* channel);  // and deletes it
void forget_all();              // in a forked child, which has no engine
}  // namespace engine

// For the engine and the driver's own kernels. Faults are traced and do nothing else.
char* gpu_bytes(uint64_t address, uint64_t length);  // in one piece
void gpu_copy(uint64_t to, uint64_t from, uint64_t length);
void gpu_fill(uint64_t to, const void* pattern, uint32_t pattern_size, uint64_t count);

void run_driver_kernel(uint64_t constants, uint64_t program);
void notify_events();  // a non-stall interrupt: see system_calls.cc

}  // namespace rmsim
