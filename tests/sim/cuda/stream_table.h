// Streams and events of one process, and how far their work is known to be done.
// Work is done the moment it is asked for, but what was freed in a stream is only known to be free
// when that stream, or something after it, was waited for. With FRACGPU_SIM_KERNEL_MS every launch
// keeps its stream busy for so long after what that was told before. All of it wants the driver's
// lock held.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/cuda/abi.h"
#include "sim/cuda/reused.h"

namespace sim {

struct Context;
struct Capture;
struct GraphNode;

// What a wait covers: one stream, or all blocking ones or all of a context, up to a moment.
struct Reach {
  enum class What : uint8_t { kNothing, kStream, kBlocking, kContext };
  What what = What::kNothing;
  uint64_t context_id = 0;
  uint64_t stream = 0;
  uint64_t moment = 0;
  uint64_t busy_until = 0;  // nanoseconds of the steady clock
};

bool kernels_take_time();
// Now, by the same clock; waits until then, without the driver's lock.
uint64_t now_ns();
void wait_until(uint64_t ns);

}  // namespace sim

struct CUstream_st : sim::Reused<CUstream_st> {
  sim::Context* context;
  uint64_t context_id;  // of the life of the context that it belongs to
  uint64_t id;          // never used twice
  unsigned flags;
  int priority;
  bool legacy;
  std::shared_ptr<sim::Capture> capture;
  std::vector<sim::GraphNode*> tail;  // what the next captured node comes after
  uint64_t busy_until = 0;
  std::vector<sim::Reach> follows;  // of the events that it was told to wait for

  bool blocking() const { return (flags & 1) == 0; }
};

struct CUevent_st : sim::Reused<CUevent_st> {
  unsigned flags;
  sim::Reach reach;
  std::shared_ptr<sim::Capture> capture;  // in which it was recorded
  std::vector<sim::GraphNode*> tail;
};

namespace sim {

class Streams {
 public:
  CUstream create(Context* context, unsigned flags, int priority);
  CUresult destroy(CUstream stream);
  // What a handle means to this thread: the default streams are those of the current context.
  CUresult find(CUstream handle, bool per_thread, CUstream* out);

  CUevent create_event(unsigned flags);
  bool destroy_event(CUevent event) { return events_.erase(event) != 0; }
  bool known(CUevent event) const { return events_.count(event) != 0; }

  uint64_t next_moment() { return ++moment_; }
  Reach reach(const CUstream_st& stream) const;
  Reach reach(const Context& context) const;
  bool covers(const Reach& reach, uint64_t stream) const;
  // The stream was told to launch something, or to wait for an event.
  void launched(CUstream stream);
  static void follow(CUstream stream, const Reach& reach);
  // The context ends, and its streams with it.
  void forget(const Context& context);

  // Those under way. A stream that is captured may not be waited for.
  std::vector<std::shared_ptr<Capture>> captures;

 private:
  struct Past {
    uint64_t context_id;
    bool blocking;
  };
  CUstream add(Context* context, unsigned flags, int priority);
  Reach with_work(Reach reach) const;

  std::unordered_map<CUstream, std::unique_ptr<CUstream_st>> streams_;
  std::unordered_map<CUevent, std::unique_ptr<CUevent_st>> events_;
  // By the context's id and the thread, 0 for the legacy stream of all threads.
  std::map<std::pair<uint64_t, uint64_t>, CUstream> default_;
  std::unordered_map<uint64_t, Past> past_;  // of every stream there ever was, by its id
  uint64_t next_id_ = 1;
  uint64_t moment_ = 0;
};

// A number of the calling thread's own, from 1.
uint64_t thread_number();

}  // namespace sim
