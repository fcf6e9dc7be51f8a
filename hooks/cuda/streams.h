// What the hooks need to know about a stream: its context, a number for it, and whether it
// captures.
#pragma once

#include <cstdint>

#include "hooks/cuda/hook.h"
#include "shim/tracking/busy_stream.h"

namespace fracgpu::cuda {

// A stream as a call names it. With `per_thread`, the null stream is the thread's own stream and
// not the legacy one.
struct Stream {
  CUstream handle;
  bool per_thread;

  bool is_default() const { return reinterpret_cast<uint64_t>(handle) <= 2; }
  bool is_legacy() const {
    return reinterpret_cast<uint64_t>(handle) == 1 || (handle == nullptr && !per_thread);
  }
};

// A number that identifies the stream among all live streams. If the process has several contexts,
// a default stream has one number for each context.
uint64_t number_of(Process& process, const Stream& stream);

// The non-default stream that the calling thread used last, and its context.
struct RememberedStream {
  const Process* process = nullptr;
  CUstream stream = nullptr;
  uint64_t streams = 0, contexts = 0;  // epochs
  Context context;

  bool is(const Process& owner, CUstream handle) const {
    return stream == handle && process == &owner && streams == owner.streams.epoch() &&
           contexts == owner.contexts.epoch();
  }
};
[[gnu::tls_model("initial-exec")]] extern constinit thread_local RememberedStream remembered_stream;

// The context whose device a stream works on. False when there is none.
[[gnu::noinline]] bool find_context_of(Process& process, const Stream& stream, Context& context);
inline bool context_of(Process& process, const Stream& stream, Context& context) {
  const RememberedStream& last = remembered_stream;
  // A default stream is never remembered.
  if (!last.is(process, stream.handle)) return find_context_of(process, stream, context);
  context = last.context;
  return true;
}

// Queries the driver only while the process captures something.
[[gnu::cold]] bool ask_whether_capturing(const Stream& stream);
inline bool is_capturing(const Process& process, const Stream& stream) {
  return process.streams.any_captured() && ask_whether_capturing(stream);
}

// Waits until the driver has done all work queued in the stream, and has noticed it: it can then
// give back the memory freed there. False if that takes more than ten seconds, or if the driver
// does not report it. A query about a captured stream ends its capture. So the caller's own stream
// must not be captured. While any stream is captured, this waits for neither other streams nor the
// legacy stream.
bool wait_for(Process& process, const Stream& own);
// Whether the driver has done all work queued in the stream, which must not be captured. False if
// the driver must not be asked: while any stream is captured, about the legacy stream.
bool is_idle(Process& process, const Stream& own);
// For memory that the driver unmaps once the work in the stream is done. The default, without
// `ask`, if other threads cannot ask the driver about the stream.
BusyStream busy_stream(Process& process, const Stream& own, const Context& context);
// Waits for another stream, given by its number. The number must have been stored while the
// process's contexts had this epoch. The stream may have ended since then, alone or with its
// context.
bool wait_for_other(Process& process, uint64_t number, uint64_t epoch);

// While it lives, the library calls the driver on its own account. "Potentially unsafe" calls
// (cuMemPoolGetAttribute and many more) fail during a capture of the same thread or a global
// capture of any thread, and they invalidate that capture. They do so unless the thread's mode is
// relaxed (CUDA driver API, cuThreadExchangeStreamCaptureMode; NVIDIA/cuda-python#2834,
// NVIDIA/cccl#11360). Without a capture this costs one comparison. The program's own calls must not
// run under it.
class OwnCalls {
 public:
  explicit OwnCalls(const Process& process) {
    if (process.streams.any_captured()) [[unlikely]]
      relax();
  }
  // For the calling process, if it has a cap.
  OwnCalls() {
    const Process* const process = Process::known();
    if (process != nullptr && process->streams.any_captured()) [[unlikely]]
      relax();
  }
  ~OwnCalls() {
    if (relaxed_) [[unlikely]]
      restore();
  }
  OwnCalls(const OwnCalls&) = delete;
  OwnCalls& operator=(const OwnCalls&) = delete;

 private:
  [[gnu::cold]] void relax();
  [[gnu::cold]] void restore();

  bool relaxed_ = false;
  int mode_ = kCaptureRelaxed;
};

// Calls `call()` under OwnCalls.
template <typename Call>
auto on_own_account(const Process& process, Call call) {
  const OwnCalls own_calls(process);
  return call();
}

}  // namespace fracgpu::cuda
