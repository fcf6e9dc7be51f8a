// The table of streams and events: which there are, and what a wait for one covers.
// The legacy stream waits for every blocking stream of its context, and is one for all threads; the
// per-thread stream is a blocking one that each thread has of its own. A stream ends with the life
// of its context, even if that is the primary one and comes back.
#include "sim/cuda/stream_table.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "sim/cuda/capture_table.h"
#include "sim/cuda/driver.h"

namespace sim {

namespace {

uint64_t kernel_ns() {
  static const uint64_t ns = [] {
    const char* text = std::getenv("FRACGPU_SIM_KERNEL_MS");
    return text != nullptr ? std::strtoull(text, nullptr, 10) * 1'000'000 : 0;
  }();
  return ns;
}

using Clock = std::chrono::steady_clock;

}  // namespace

bool kernels_take_time() {
  return kernel_ns() != 0;
}

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now().time_since_epoch()).count());
}

void wait_until(uint64_t ns) {
  if (ns != 0) std::this_thread::sleep_until(Clock::time_point(std::chrono::nanoseconds(ns)));
}

uint64_t thread_number() {
  static std::atomic<uint64_t> next{0};
  static thread_local const uint64_t own = next.fetch_add(1) + 1;
  return own;
}

CUstream Streams::add(Context* context, unsigned flags, int priority) {
  auto stream = std::make_unique<CUstream_st>();
  stream->context = context;
  stream->context_id = context->owner()->id;
  stream->id = next_id_++;
  stream->flags = flags;
  stream->priority = priority;
  stream->legacy = false;
  past_[stream->id] = {stream->context_id, stream->blocking()};
  const CUstream handle = stream.get();
  streams_[handle] = std::move(stream);
  return handle;
}

CUstream Streams::create(Context* context, unsigned flags, int priority) {
  return add(context, flags, priority);
}

CUresult Streams::destroy(CUstream stream) {
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture != nullptr) leave_capture(stream);
  streams_.erase(found);
  return CUDA_SUCCESS;
}

CUresult Streams::find(CUstream handle, bool per_thread, CUstream* out) {
  const auto number = reinterpret_cast<uintptr_t>(handle);
  if (number > 2) {
    if (streams_.count(handle) == 0) return CUDA_ERROR_INVALID_HANDLE;
    *out = handle;
    return CUDA_SUCCESS;
  }
  Context* context = current();
  if (const CUresult refused = usable(context)) return refused;
  const bool own = number == 2 || (number == 0 && per_thread);
  CUstream& stream = default_[{context->owner()->id, own ? thread_number() : 0}];
  if (stream == nullptr) {
    stream = add(context, 0, 0);
    stream->legacy = !own;
  }
  *out = stream;
  return CUDA_SUCCESS;
}

CUevent Streams::create_event(unsigned flags) {
  auto event = std::make_unique<CUevent_st>();
  event->flags = flags;
  const CUevent handle = event.get();
  events_[handle] = std::move(event);
  return handle;
}

Reach Streams::reach(const CUstream_st& stream) const {
  const auto what = stream.legacy ? Reach::What::kBlocking : Reach::What::kStream;
  return with_work({what, stream.context_id, stream.id, moment_});
}

Reach Streams::reach(const Context& context) const {
  return with_work({Reach::What::kContext, const_cast<Context&>(context).owner()->id, 0, moment_});
}

Reach Streams::with_work(Reach reach) const {
  if (kernel_ns() == 0) return reach;
  for (const auto& [handle, stream] : streams_) {
    if (covers(reach, stream->id))
      reach.busy_until = std::max(reach.busy_until, stream->busy_until);
  }
  return reach;
}

void Streams::launched(CUstream stream) {
  if (kernel_ns() != 0)
    stream->busy_until = std::max({now_ns(), reach(*stream).busy_until}) + kernel_ns();
}

void Streams::follow(CUstream stream, const Reach& reach) {
  if (reach.what == Reach::What::kNothing) return;
  stream->busy_until = std::max(stream->busy_until, reach.busy_until);
  // A later wait for the same stream covers an earlier one.
  auto& all = stream->follows;
  all.erase(std::remove_if(all.begin(), all.end(),
                           [&](const Reach& each) {
                             return each.what == reach.what && each.stream == reach.stream &&
                                    each.context_id == reach.context_id;
                           }),
            all.end());
  all.push_back(reach);
}

void Streams::forget(const Context& context) {
  const auto ends = [&](const CUstream_st& stream) {
    return stream.context == &context || stream.context_id == context.id;
  };
  std::erase_if(default_, [&](const auto& entry) { return ends(*entry.second); });
  std::erase_if(streams_, [&](const auto& entry) {
    if (!ends(*entry.second)) return false;
    if (entry.second->capture != nullptr) leave_capture(entry.first);
    return true;
  });
}

bool Streams::covers(const Reach& reach, uint64_t stream) const {
  if (reach.what == Reach::What::kStream) return stream == reach.stream;
  if (reach.what == Reach::What::kNothing) return false;
  const Past& past = past_.at(stream);
  return past.context_id == reach.context_id &&
         (reach.what == Reach::What::kContext || past.blocking);
}

}  // namespace sim
