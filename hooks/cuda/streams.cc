// Streams: the memory that they take, what is remembered of them, and the hooks that forget it.
#include "hooks/cuda/streams.h"

#include <time.h>

#include "hooks/cuda/context_size.h"
#include "hooks/cuda/limits.h"
#include "hooks/cuda/overhead_call.h"
#include "shim/base/clock.h"
#include "shim/charge/linear.h"

namespace fracgpu::cuda {
namespace {

const auto kLegacy = reinterpret_cast<CUstream>(1);     // CU_STREAM_LEGACY
const auto kPerThread = reinterpret_cast<CUstream>(2);  // CU_STREAM_PER_THREAD

// A unique number of the calling thread. No number is used twice.
uint64_t thread_number() {
  static constinit std::atomic<uint64_t> last{0};
  [[gnu::tls_model("initial-exec")]] static thread_local uint64_t own = 0;
  if (own == 0) own = ++last;
  return own;
}

// Calls `call()`, which begins a capture in the stream.
template <typename Call>
CUresult begin_capture(const Stream& stream, Call call) {
  Hook hook;
  if (!hook.active()) return call();
  StreamTable& streams = hook.process().streams;
  const uint64_t number = number_of(hook.process(), stream);
  streams.begin_capture(number);
  const CUresult result = call();
  if (result != kSuccess) streams.end_capture(number);
  return result;
}

// Calls `call()`, which ends the capture unless the thread or the stream is the wrong one.
template <typename Call>
CUresult end_capture(const Stream& stream, Call call) {
  Hook hook;
  const CUresult result = call();
  if (!hook.active()) return result;
  if (result == kSuccess || result == kCaptureInvalidated || result == kCaptureUnjoined)
    hook.process().streams.end_capture(number_of(hook.process(), stream));
  return result;
}

// Calls a driver function for the stream, which must not be captured.
template <typename Real>
CUresult ask_about(Process& process, const Stream& own, const Real& real) {
  const CUstream handle = own.is_legacy() ? kLegacy : own.is_default() ? kPerThread : own.handle;
  const bool guarded = process.streams.begin_wait();
  if (!guarded && own.is_legacy()) return kNotSupported;
  const CUresult result = on_own_account(process, [&] { return real(handle); });
  if (guarded) process.streams.end_wait();
  return result;
}

// Calls a driver function for a stream that may end in another thread, if `check()` returns
// kSuccess; otherwise returns its result. kNotSupported while any stream is captured.
//
// The driver may crash if it is asked about a stream that is gone. A hook that destroys a stream
// first forgets what the stream freed, unmapped or ran last. A hook that ends a context changes the
// epoch. `check()` looks for both.
template <typename Check, typename Real>
CUresult ask_about_other(Process& process, CUstream handle, Check check, const Real& real) {
  if (!process.streams.begin_wait()) return kNotSupported;
  CUresult result = check();
  if (result == kSuccess) result = on_own_account(process, [&] { return real(handle); });
  process.streams.end_wait();
  return result;
}

BusyStream::Outcome outcome_of(const BusyStream& busy) {
  Process& process = *Process::known();
  const auto handle = reinterpret_cast<CUstream>(busy.number);
  const auto check = [&]() -> CUresult {
    if (handle != kLegacy) {
      const bool lives =
          process.contexts.epoch() == busy.epoch && process.physical.has_unmaps(busy.number);
      return lives ? kSuccess : kInvalidValue;
    }
    // The driver would answer for the legacy stream of the calling thread's context.
    CUcontext current = nullptr;
    Context context;
    const bool is_same = real::cuCtxGetCurrent(&current) == kSuccess &&
                         process.contexts.find(current, context) && context.id == busy.context;
    return is_same ? kSuccess : kNotReady;
  };
  switch (ask_about_other(process, handle, check, real::cuStreamQuery)) {
    case kSuccess:
      return BusyStream::Outcome::done;
    case kNotReady:
    case kNotSupported:
      return BusyStream::Outcome::waits;
    default:
      return BusyStream::Outcome::unknown;
  }
}

// Waits for a stream. `ask(real function)` calls that driver function for the stream.
template <typename Ask>
bool wait_by(Ask ask) {
  // A stream may itself wait for something that the program does later, so the wait may be in vain.
  // Allocations that need a shorter wait are not refused. A pause delays an allocation by its own
  // length at most. Behind kernels of 5 ms, 20 rounds take 237 queries and 0.23 s; with pauses of
  // 10 us, they take 1,600 queries and the same time; with pauses of 5 ms, 188 queries and 0.26 s.
  constexpr uint64_t kMost_ms = 10'000;
  constexpr long kLongestPause_ns = 1'000'000;
  const uint64_t end = coarse_now_ms() + kMost_ms;
  CUresult result = ask(real::cuStreamQuery);
  for (long pause = 10'000; result == kNotReady && coarse_now_ms() < end;) {
    sleep_ns(pause);
    pause = pause * 2 < kLongestPause_ns ? pause * 2 : kLongestPause_ns;
    result = ask(real::cuStreamQuery);
  }
  // The driver checks for freed memory only when it is asked to synchronize.
  return result == kSuccess && ask(real::cuStreamSynchronize) == kSuccess;
}

// Calls `create()`, which makes a stream in the current context.
template <typename Create>
CUresult create_stream(const char* api, CUstream* out, Create create) {
  Hook hook;
  Context context;
  if (!hook.active() || out == nullptr || !current_context(hook.process(), context) ||
      context.device_index < 0) {
    return create();
  }
  Process& process = hook.process();
  const auto mark = process.contexts.add(context.id, ContextTable::streams, 1);
  // A graph makes the driver create streams of its own, which no call reports.
  const bool is_counted = !process.contexts.any_yet(context.id, ContextTable::graph_bytes);
  const uint64_t pages = !is_counted      ? kMostPagesOfStream
                         : mark.rise != 0 ? pages_of_stream(mark.most)
                                          : 0;
  const CUresult result =
      take_pages(process, context, api, pages, out, create, real::cuStreamDestroy_v2);
  if (result != kSuccess) process.contexts.cancel(context.id, ContextTable::streams, 1, mark);
  return result;
}

template <typename Real>
CUresult destroy(CUstream stream, const Real& real) {
  Hook hook;
  if (!hook.active()) return real(stream);
  Context context;
  const bool counted = stream != nullptr && context_of(hook.process(), {stream, false}, context);
  // Forgotten before the driver may give its handle to another stream. If the driver refuses, the
  // only loss is that less is known about what the stream freed.
  Process& process = hook.process();
  const uint64_t number = number_of(process, {stream, false});
  process.pool_blocks.forget_stream(number);
  process.graphs.forget_stream(number);
  finish_unmaps(process);
  process.physical.forget_stream(
      number, [&](const PhysicalTable::Freed& freed) { give_back(process, freed); });
  const uint64_t captures = process.streams.take(number);
  process.streams.await_waits();  // for what the stream had freed; see wait_for
  const CUresult result = real(stream);
  if (result != kSuccess) process.streams.put_back(number, captures);
  if (result == kSuccess && counted) process.contexts.remove(context.id, ContextTable::streams, 1);
  return result;
}

}  // namespace

// GCC loses the TLS model of the declaration.
[[gnu::tls_model("initial-exec")]] constinit thread_local RememberedStream remembered_stream;

void OwnCalls::relax() {
  relaxed_ = real::cuThreadExchangeStreamCaptureMode(&mode_) == kSuccess;
}

void OwnCalls::restore() {
  real::cuThreadExchangeStreamCaptureMode(&mode_);
}

uint64_t number_of(Process& process, const Stream& stream) {
  if (!stream.is_default()) return reinterpret_cast<uint64_t>(stream.handle);
  CUcontext context = nullptr;
  if (process.contexts.several()) real::cuCtxGetCurrent(&context);
  const uint64_t thread = stream.is_legacy() ? 0 : thread_number();
  return hash_of(reinterpret_cast<uint64_t>(context) + hash_of(thread)) | 1;
}

bool find_context_of(Process& process, const Stream& stream, Context& context) {
  // A default stream belongs to whichever context is current.
  if (stream.is_default()) return current_context(process, context);
  // Read before the driver is asked: its answer may be outdated when it is remembered.
  const uint64_t streams = process.streams.epoch(), contexts = process.contexts.epoch();
  const OwnCalls own_calls(process);
  CUcontext handle = nullptr;
  if (real::cuStreamGetCtx(stream.handle, &handle) != kSuccess ||
      !known_context(process, handle, context)) {
    return current_context(process, context);
  }
  if (process.contexts.any_may_grow()) {
    see_launches(process, context);
  } else {
    remembered_stream = {&process, stream.handle, streams, contexts, context};
  }
  return true;
}

bool ask_whether_capturing(const Stream& stream) {
  if (stream.is_legacy()) return false;  // documented: it cannot be captured
  const CUstream handle = stream.handle == nullptr ? kPerThread : stream.handle;
  int status = kNotCapturing;
  return real::cuStreamIsCapturing(handle, &status) == kSuccess && status != kNotCapturing;
}

bool wait_for(Process& process, const Stream& own) {
  return wait_by([&](const auto& real) { return ask_about(process, own, real); });
}

bool is_idle(Process& process, const Stream& own) {
  return ask_about(process, own, real::cuStreamQuery) == kSuccess;
}

BusyStream busy_stream(Process& process, const Stream& own, const Context& context) {
  if (context.id == kUntrackedContext || (own.is_default() && !own.is_legacy())) return {};
  return {.number = reinterpret_cast<uint64_t>(own.is_legacy() ? kLegacy : own.handle),
          .epoch = process.contexts.epoch(),
          .context = context.id,
          .ask = outcome_of};
}

bool wait_for_other(Process& process, uint64_t number, uint64_t epoch) {
  // Handles are even. A default stream cannot be named here, but the legacy stream waits for it.
  const bool is_default = (number & 1) != 0;
  const CUstream handle = is_default ? kLegacy : reinterpret_cast<CUstream>(number);
  const auto check = [&] {
    const bool lives =
        is_default || (process.contexts.epoch() == epoch &&
                       (process.pool_blocks.has_hole(number) || process.graphs.is_last(number)));
    return lives ? kSuccess : kInvalidValue;
  };
  return wait_by([&](const auto& real) { return ask_about_other(process, handle, check, real); });
}

CUresult cuStreamCreate(CUstream* stream, unsigned int flags) {
  return create_stream("cuStreamCreate", stream,
                       [&] { return real::cuStreamCreate(stream, flags); });
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned int flags, int priority) {
  return create_stream("cuStreamCreateWithPriority", stream,
                       [&] { return real::cuStreamCreateWithPriority(stream, flags, priority); });
}

CUresult cuStreamBeginCapture(CUstream stream) {
  return begin_capture({stream, false}, [&] { return real::cuStreamBeginCapture(stream); });
}

CUresult cuStreamBeginCapture_ptsz(CUstream stream) {
  return begin_capture({stream, true}, [&] { return real::cuStreamBeginCapture_ptsz(stream); });
}

CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
  return begin_capture({stream, false},
                       [&] { return real::cuStreamBeginCapture_v2(stream, mode); });
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode) {
  return begin_capture({stream, true},
                       [&] { return real::cuStreamBeginCapture_v2_ptsz(stream, mode); });
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                     const CUgraphNode* dependencies, const void* dependency_data,
                                     size_t count, int mode) {
  return begin_capture({stream, false}, [&] {
    return real::cuStreamBeginCaptureToGraph(stream, graph, dependencies, dependency_data, count,
                                             mode);
  });
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph,
                                          const CUgraphNode* dependencies,
                                          const void* dependency_data, size_t count, int mode) {
  return begin_capture({stream, true}, [&] {
    return real::cuStreamBeginCaptureToGraph_ptsz(stream, graph, dependencies, dependency_data,
                                                  count, mode);
  });
}

CUresult cuStreamBeginRecaptureToGraph(CUstream stream, int mode, CUgraph graph, void* callback,
                                       void* data) {
  return begin_capture({stream, false}, [&] {
    return real::cuStreamBeginRecaptureToGraph(stream, mode, graph, callback, data);
  });
}

CUresult cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, int mode, CUgraph graph,
                                            void* callback, void* data) {
  return begin_capture({stream, true}, [&] {
    return real::cuStreamBeginRecaptureToGraph_ptsz(stream, mode, graph, callback, data);
  });
}

CUresult cuStreamBeginCaptureToCig(CUstream stream, void* parameters) {
  return begin_capture({stream, false},
                       [&] { return real::cuStreamBeginCaptureToCig(stream, parameters); });
}

CUresult cuStreamBeginCaptureToCig_ptsz(CUstream stream, void* parameters) {
  return begin_capture({stream, true},
                       [&] { return real::cuStreamBeginCaptureToCig_ptsz(stream, parameters); });
}

CUresult cuStreamEndCaptureToCig(CUstream stream) {
  return end_capture({stream, false}, [&] { return real::cuStreamEndCaptureToCig(stream); });
}

CUresult cuStreamEndCaptureToCig_ptsz(CUstream stream) {
  return end_capture({stream, true}, [&] { return real::cuStreamEndCaptureToCig_ptsz(stream); });
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return end_capture({stream, false}, [&] { return real::cuStreamEndCapture(stream, graph); });
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph* graph) {
  return end_capture({stream, true}, [&] { return real::cuStreamEndCapture_ptsz(stream, graph); });
}

CUresult cuStreamDestroy(CUstream stream) {
  return destroy(stream, real::cuStreamDestroy);
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  return destroy(stream, real::cuStreamDestroy_v2);
}

}  // namespace fracgpu::cuda
