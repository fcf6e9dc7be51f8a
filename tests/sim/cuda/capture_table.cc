// The table of captures: joining, what becomes a node, and what makes one invalid.
#include "sim/cuda/capture_table.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "sim/cuda/driver.h"

namespace sim {

std::atomic<int> captures_under_way{0};

namespace {

thread_local int thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

// The nodes that come before a place in the graph, and those at it.
void gather(const std::vector<GraphNode*>& tail, std::set<GraphNode*>* reached) {
  for (GraphNode* node : tail) {
    if (reached->insert(node).second) gather(node->after, reached);
  }
}

bool all_joined(const Capture& capture) {
  std::set<GraphNode*> reached;
  gather(capture.origin->tail, &reached);
  return std::all_of(capture.streams.begin(), capture.streams.end(), [&](CUstream stream) {
    return std::all_of(stream->tail.begin(), stream->tail.end(),
                       [&](GraphNode* node) { return reached.count(node) != 0; });
  });
}

void end(const std::shared_ptr<Capture>& capture) {
  capture->ended = true;
  for (CUstream stream : capture->streams) {
    stream->tail.clear();
    if (stream->capture == capture) stream->capture = nullptr;
  }
  auto& all = Driver::get().streams.captures;
  all.erase(std::find(all.begin(), all.end(), capture));
  captures_under_way.store(static_cast<int>(all.size()));
}

void discard(Capture* capture) {
  capture->graph->capturing = false;
  Driver::get().graphs.destroy(capture->graph);
  capture->graph = nullptr;
}

// Whether a capture that is under way has a blocking stream of this context.
Capture* implied(const CUstream_st& legacy) {
  for (const auto& capture : Driver::get().streams.captures) {
    for (const CUstream stream : capture->streams) {
      if (stream->blocking() && stream->context_id == legacy.context_id) return capture.get();
    }
  }
  return nullptr;
}

CUresult invalidate(Capture* capture, CUresult reason) {
  capture->invalid = true;
  return reason;
}

}  // namespace

int exchange_capture_mode(int mode) {
  return std::exchange(thread_mode, mode);
}

CUresult begin_capture(CUstream stream, int mode) {
  Driver& driver = Driver::get();
  if (stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>();
  capture->graph = driver.graphs.create();
  capture->graph->capturing = true;
  capture->origin = stream;
  capture->mode = mode;
  capture->thread = thread_number();
  capture->streams.insert(stream);
  stream->capture = capture;
  stream->tail.clear();
  driver.streams.captures.push_back(std::move(capture));
  captures_under_way.store(static_cast<int>(driver.streams.captures.size()));
  return CUDA_SUCCESS;
}

CUresult end_capture(CUstream stream, CUgraph* out) {
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != thread_number())
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  if (capture->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  const bool joined = all_joined(*capture);
  end(capture);
  *out = nullptr;
  if (capture->invalid || !joined) {
    discard(capture.get());
    return capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                            : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  capture->graph->capturing = false;
  *out = capture->graph->handle;
  return CUDA_SUCCESS;
}

CUresult capture_status(CUstream stream, int* status) {
  if (stream->legacy && implied(*stream) != nullptr) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  *status = stream->capture == nullptr ? CU_STREAM_CAPTURE_STATUS_NONE
            : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                       : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return CUDA_SUCCESS;
}

CUresult refused_in_capture(CUstream stream) {
  if (Capture* own = stream->capture.get()) {
    if (own->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    return invalidate(own, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  Capture* other = stream->legacy ? implied(*stream) : nullptr;
  return other != nullptr ? invalidate(other, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) : CUDA_SUCCESS;
}

CUresult refused_in_capture(const Context& context) {
  CUresult result = CUDA_SUCCESS;
  const uint64_t id = const_cast<Context&>(context).owner()->id;
  for (const auto& capture : Driver::get().streams.captures) {
    if (capture->origin->context_id == id)
      result = invalidate(capture.get(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return result;
}

CUresult refused_in_any_capture() {
  if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : Driver::get().streams.captures) {
    const bool own = capture->thread == thread_number();
    const bool counts = own ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                            : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                  thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (counts) result = invalidate(capture.get(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return result;
}

const bool names_unsafe_calls = std::getenv("FRACGPU_SIM_UNSAFE") != nullptr;

CUresult refused_if_named_unsafe(const char* function) {
  if (captures_under_way.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;
  std::string_view rest = std::getenv("FRACGPU_SIM_UNSAFE");
  while (!rest.empty()) {
    const std::string_view name = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    if (name != function) continue;
    const Guard guard(Driver::get().lock());
    return refused_in_any_capture();
  }
  return CUDA_SUCCESS;
}

CUresult capture_allocation(CUstream stream, const CUmemPoolProps& props, uint64_t bytes,
                            uint64_t* out) {
  if (stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  CUDA_MEM_ALLOC_NODE_PARAMS params = {};
  params.poolProps = props;
  params.poolProps.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
  params.bytesize = bytes;
  GraphNode* node = nullptr;
  const CUresult result =
      Driver::get().graphs.add_allocation(stream->capture->graph, stream->tail, &params, &node);
  if (result != CUDA_SUCCESS) return result;
  stream->tail = {node};
  *out = params.dptr;
  return CUDA_SUCCESS;
}

CUresult capture_free(CUstream stream, uint64_t address) {
  if (stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  GraphNode* node = nullptr;
  const CUresult result =
      Driver::get().graphs.add_free(stream->capture->graph, stream->tail, address, &node);
  if (result == CUDA_SUCCESS) stream->tail = {node};
  return result;
}

CUresult capture_kernel(CUstream stream) {
  if (stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  stream->tail = {
      Driver::get().graphs.add(stream->capture->graph, CU_GRAPH_NODE_TYPE_KERNEL, stream->tail)};
  return CUDA_SUCCESS;
}

CUresult join_capture(CUstream stream, const CUevent_st& event) {
  Capture* theirs = event.capture.get();
  Capture* own = stream->capture.get();
  if (theirs == nullptr) {
    const bool recorded = event.reach.what != Reach::What::kNothing;
    if (own != nullptr && recorded) return invalidate(own, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    return CUDA_SUCCESS;
  }
  if (theirs->ended) return CUDA_ERROR_CAPTURED_EVENT;
  if (stream->legacy) return invalidate(theirs, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  if (own != nullptr && own != theirs) {
    invalidate(own, 0);
    return invalidate(theirs, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  if (own == nullptr) {
    stream->capture = event.capture;
    stream->tail.clear();
    theirs->streams.insert(stream);
  }
  for (GraphNode* node : event.tail) {
    if (std::find(stream->tail.begin(), stream->tail.end(), node) == stream->tail.end())
      stream->tail.push_back(node);
  }
  return CUDA_SUCCESS;
}

void leave_capture(CUstream stream) {
  const std::shared_ptr<Capture> capture = stream->capture;
  capture->invalid = true;
  if (capture->origin == stream) {
    end(capture);
    discard(capture.get());
    return;
  }
  capture->streams.erase(stream);
}

}  // namespace sim
