// What the hooks must know of a stream: its context, a number for it, and whether it is captured.
#pragma once

#include <cstdint>

#include "hooks/cuda/hook.h"

namespace fracgpu::cuda {

// A stream as a call names it. `per_thread`: the null stream is the thread's own, and not the
// legacy one.
struct Stream {
  CUstream handle;
  bool per_thread;

  bool is_default() const { return reinterpret_cast<uint64_t>(handle) <= 2; }
  bool is_legacy() const {
    return reinterpret_cast<uint64_t>(handle) == 1 || (handle == nullptr && !per_thread);
  }
};

// A number that stands for the stream, and for no other one while that lives. Default streams have
// one for each context, if there are several.
uint64_t number_of(Process& process, const Stream& stream);

// The stream that the calling thread named last, but for default ones, and its context.
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
  // No default stream is ever remembered.
  if (!last.is(process, stream.handle)) return find_context_of(process, stream, context);
  context = last.context;
  return true;
}

// Asks the driver only while there is some capture in the process.
[[gnu::cold]] bool ask_whether_capturing(const Stream& stream);
inline bool is_capturing(const Process& process, const Stream& stream) {
  return process.streams.any_captured() && ask_whether_capturing(stream);
}

// Waits until the driver has done what the stream was told so far, and knows that it has: then what
// was freed there may be given back. False where that takes more than ten seconds, or where the
// driver does not say. To ask about a captured stream ends its capture. So the stream of the call
// that waits must not be captured; others, and the legacy stream, are not waited for while anything
// is.
bool wait_for(Process& process, const Stream& own);
// The same for another stream, by its number, which was remembered when the process's contexts had
// this epoch: it may have ended since then, alone or with its context.
bool wait_for_other(Process& process, uint64_t number, uint64_t epoch);

// Within it the library calls the driver on its own account. Calls that are "potentially unsafe"
// (cuMemPoolGetAttribute and many more) fail during a capture of the thread's own, or a global one
// of any thread, and make it invalid, unless the thread's mode is relaxed (CUDA driver API,
// cuThreadExchangeStreamCaptureMode; NVIDIA/cuda-python#2834, NVIDIA/cccl#11360). Costs one
// comparison while nothing is captured. A program's own calls do not belong into it.
class OwnCalls {
 public:
  explicit OwnCalls(const Process& process) {
    if (process.streams.any_captured()) [[unlikely]]
      relax();
  }
  // Of the calling process, if it has a cap.
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

// Calls `call()` so.
template <typename Call>
auto on_own_account(const Process& process, Call call) {
  const OwnCalls own_calls(process);
  return call();
}

}  // namespace fracgpu::cuda
