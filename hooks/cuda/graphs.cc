// Graphs. The driver takes the memory for a graph's kernels when the graph is instantiated. When
// the graph is destroyed, the driver keeps that memory for later graphs.
//
// The memory of allocation nodes appears when a graph is uploaded or launched. It stays with the
// device's graph memory until the program trims that. It is charged like a pool, by what the driver
// reports as reserved. A launch of any other graph costs one comparison.
#include <atomic>
#include <bit>
#include <optional>

#include "hooks/cuda/graph_needs.h"
#include "hooks/cuda/overhead_call.h"
#include "shim/charge/linear.h"
#include "shim/charge/pools.h"
#include "shim/charge/reservation.h"

namespace fracgpu::cuda {
namespace {

// A device's graph memory is entered among the pools. Its key cannot be a pool's handle.
uint64_t key_of(CUdevice device) {
  return static_cast<uint64_t>(device) + 1;
}
CUdevice device_of(uint64_t key) {
  return static_cast<CUdevice>(key - 1);
}
bool reserved_for_graphs(uint64_t key, uint64_t& bytes) {
  const OwnCalls own_calls;
  return real::cuDeviceGetGraphMemAttribute(device_of(key), kGraphReserved, &bytes) == kSuccess;
}
void trim_graphs(uint64_t key) {
  const OwnCalls own_calls;
  real::cuDeviceGraphMemTrim(device_of(key));
}
constexpr PoolDriver kGraphMemory = {reserved_for_graphs, trim_graphs};

// Set for good when a graph that allocates is seen. Every launch pays only for this one branch.
std::atomic<bool> any_graph_allocates{false};

void learn(Process& process, CUgraphExec exec, const GraphNeeds& needs) {
  for (int device = 0; device < GraphTable::kMaxDevices; ++device) {
    const uint64_t units = needs.units[device];
    if (units == 0 && (process.graphs.devices() >> device & 1) == 0) continue;
    any_graph_allocates.store(true, std::memory_order_relaxed);
    process.graphs.set(exec, device, units, needs.frees_all);
    // Instantiation may already have uploaded the graph.
    const int device_index = units != 0 ? device_index_of(process, device) : Process::kNotCapped;
    if (device_index >= 0 && process.pools.add(key_of(device), device_index, kGraphMemory)) {
      settle_pool(process, key_of(device), nullptr);
    }
  }
}

GraphNeeds needs_of(const Process& process, CUgraph graph) {
  return on_own_account(process, [&] { return GraphNeeds(graph); });
}

// Calls `make()` in the context, with room for the memory of the kernels. The driver reuses the
// memory of the context's earlier graphs. But once a graph is destroyed, that memory may be in
// pieces too small for this graph: then all of its memory must fit.
template <typename Make>
CUresult make_in(Process& process, const Context& context, CUgraphExec* exec, uint64_t bytes,
                 Make make) {
  const auto pages = [](uint64_t size) { return (size + kPageBytes - 1) / kPageBytes; };
  const auto mark = process.contexts.add(context.id, ContextTable::graph_bytes, bytes);
  uint64_t more = mark.any_removed ? pages(bytes) : pages(mark.most) - pages(mark.most - mark.rise);
  if (more != 0) ++more;  // the driver may not fill its pages as evenly
  const CUresult result = take_pages(process, context, "cuGraphInstantiate", more, exec, make,
                                     real::cuGraphExecDestroy);
  if (result == kSuccess) {
    process.graphs.set_made(*exec, context.id, bytes);
  } else {
    process.contexts.cancel(context.id, ContextTable::graph_bytes, bytes, mark);
  }
  return result;
}

template <typename Make>
CUresult instantiate(CUgraphExec* exec, CUgraph graph, Make make) {
  Hook hook;
  if (!hook.active() || exec == nullptr || graph == nullptr) return make();
  Process& process = hook.process();
  const GraphNeeds needs = needs_of(process, graph);
  const uint64_t bytes = needs.instantiated_bytes();
  Context context;
  const bool is_charged = current_context(process, context) && context.device_index >= 0 &&
                          (bytes != 0 || kernel_calls_are_watched(context.device_index));
  const CUresult result = is_charged ? make_in(process, context, exec, bytes, make) : make();
  if (result == kSuccess) learn(process, *exec, needs);
  return result;
}

bool allocates(Process& process, CUgraphExec exec) {
  uint64_t units = 0;
  for (uint64_t left = process.graphs.devices(); left != 0; left &= left - 1)
    units |= process.graphs.units(exec, std::countr_zero(left));
  return units != 0;
}

// An update does not change the topology, so only a graph that already allocates can allocate after
// it.
template <typename Call>
CUresult update(CUgraphExec exec, CUgraph graph, Call call) {
  Hook hook;
  if (!hook.active()) return call();
  Context context;
  const bool is_watched =
      current_context(hook.process(), context) && kernel_calls_are_watched(context.device_index);
  const CUresult result =
      is_watched ? take_as_needed(hook.process(), context.device_index, "cuGraphExecUpdate", call)
                 : call();
  if (result != kSuccess) return result;
  if (allocates(hook.process(), exec)) learn(hook.process(), exec, needs_of(hook.process(), graph));
  return result;
}

// A run of an executable graph, as the program requests it.
struct GraphRun {
  const char* api;
  CUgraphExec exec;
  Stream stream;
};

// Reserves room for all that the graph needs. Waits for the earlier graphs before it refuses: their
// memory can then be given back or used again.
[[gnu::cold]] bool make_room(Process& process, const GraphRun& run, CUdevice device,
                             Reservation& reservation) {
  Refusal refusal;
  if (reservation.ask(refusal)) return true;
  const uint64_t epoch = process.contexts.epoch();
  const uint64_t last = process.graphs.stream_of_last(device);
  if (refusal.fault.empty() && last != 0) {
    if (last != number_of(process, run.stream)) wait_for_other(process, last, epoch);
    if (!is_capturing(process, run.stream) && wait_for(process, run.stream)) {
      refusal = Refusal{};
      if (reservation.ask(refusal)) return true;
    }
  }
  reservation.refuse(refusal);
  return false;
}

// While it lives, the charge of a device's graph memory does not fall.
class Kept {
 public:
  Kept(Process& process, uint64_t key) : process_(process), key_(key) {
    kept_ = process.pools.begin_keep(key, pool_);
  }
  ~Kept() { end(); }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

  void end() {
    if (kept_) process_.pools.end_keep(key_);
    kept_ = false;
  }
  uint64_t falls() const { return pool_.falls; }

 private:
  Process& process_;
  const uint64_t key_;
  Pool pool_;
  bool kept_ = false;
};

// Calls `call()` with room for what the graph needs on each device of the set `devices`.
template <typename Call>
CUresult run_on(Process& process, const GraphRun& run, uint64_t devices, Call call) {
  if (devices == 0) return call();
  const CUdevice device = std::countr_zero(devices);
  const uint64_t others = devices & (devices - 1);
  const uint64_t units = process.graphs.units(run.exec, device);
  const int device_index = units != 0 ? device_index_of(process, device) : Process::kNotCapped;
  if (device_index == Process::kNotCapped) return run_on(process, run, others, call);
  const uint64_t key = key_of(device);
  if (device_index == Process::kFault || !process.pools.add(key, device_index, kGraphMemory)) {
    report_fault(process, run.api);
    return kOutOfMemory;
  }
  const uint64_t stream = number_of(process, run.stream);
  // Memory that is already there need not be reserved again, as long as its charge does not fall.
  Kept kept(process, key);
  const uint64_t growth = process.graphs.growth(run.exec, device, stream, kept.falls());
  std::optional<Reservation> reservation;
  reservation.emplace(process, device_index, pool_growth_units(growth * layout::kUnit),
                      AskingCall(run.api, growth * layout::kUnit), Reservation::Unasked{});
  Refusal refusal;
  if (!*reservation && (growth == units || !reservation->ask(refusal))) {
    // The growth does not fit. Reserving all of the graph's memory can fit only if the present
    // memory is given back first.
    kept.end();
    reservation.emplace(process, device_index, pool_growth_units(units * layout::kUnit),
                        AskingCall(run.api, units * layout::kUnit), Reservation::Unasked{});
    if (!*reservation && !make_room(process, run, device, *reservation)) return kOutOfMemory;
  }
  const uint64_t pledge = reservation->units();
  process.pools.pledge(key, pledge);
  const GraphTable::Run begun = process.graphs.begin_run(run.exec, device, stream, kept.falls());
  const CUresult result = run_on(process, run, others, call);
  // With other devices left, another device's cap may have refused.
  if (result == kOutOfMemory && others == 0) reservation->refused_by_driver();
  kept.end();
  settle_pool(process, key, &*reservation, pledge);
  // If the driver has already given memory back, it was never charged, and the next run cannot use
  // it.
  Pool pool;
  const bool is_there = result == kSuccess && process.pools.find(key, pool) && pool.units >= units;
  process.graphs.end_run(device, begun, is_there);
  return result;
}

template <typename Real>
CUresult run_graph(const GraphRun& run, const Real& real) {
  driver_library.resolve();
  if (!any_graph_allocates.load(std::memory_order_relaxed))
    return real(run.exec, run.stream.handle);
  Hook hook;
  const auto call = [&] { return real(run.exec, run.stream.handle); };
  if (!hook.active()) return call();
  if (!allocates(hook.process(), run.exec)) {
    // The memory of its kernels is charged like that of other launches.
    const HookScope::Callback launch;
    return call();
  }
  return run_on(hook.process(), run, hook.process().graphs.devices(), call);
}

// An upload at instantiation is made afterwards, as the program would, so that the graph's memory
// finds room. It leaves no other trace: "CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD will not be returned",
// says NVIDIA's documentation of cuGraphExecGetFlags.
template <typename Instantiate, typename Upload>
CUresult instantiate_with(CUgraphExec* exec, CUgraph graph, void* parameters, bool per_thread,
                          const Instantiate& instantiate_real, const Upload& upload) {
  auto* const asked = static_cast<CUDA_GRAPH_INSTANTIATE_PARAMS*>(parameters);
  const auto plainly = [&](void* with) {
    return instantiate(exec, graph, [&] { return instantiate_real(exec, graph, with); });
  };
  if (exec == nullptr || asked == nullptr || (asked->flags & kUpload) == 0 || !Hook().active())
    return plainly(parameters);
  const CUgraphExec before = *exec;
  CUDA_GRAPH_INSTANTIATE_PARAMS without = *asked;
  without.flags &= ~uint64_t{kUpload};
  CUresult result = plainly(&without);
  asked->hErrNode_out = without.hErrNode_out;
  asked->result_out = without.result_out;
  if (result != kSuccess) return result;
  result = run_graph({"cuGraphInstantiate", *exec, {asked->hUploadStream, per_thread}}, upload);
  if (result == kSuccess) return result;
  cuGraphExecDestroy(*exec);
  *exec = before;
  asked->result_out = kInstantiateError;
  return result;
}

}  // namespace

CUresult cuGraphInstantiate(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log,
                            size_t log_bytes) {
  return instantiate(exec, graph, [&] {
    return real::cuGraphInstantiate(exec, graph, error_node, log, log_bytes);
  });
}

CUresult cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log,
                               size_t log_bytes) {
  return instantiate(exec, graph, [&] {
    return real::cuGraphInstantiate_v2(exec, graph, error_node, log, log_bytes);
  });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return instantiate(exec, graph,
                     [&] { return real::cuGraphInstantiateWithFlags(exec, graph, flags); });
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* exec, CUgraph graph, void* parameters) {
  return instantiate_with(exec, graph, parameters, false, real::cuGraphInstantiateWithParams,
                          real::cuGraphUpload);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec* exec, CUgraph graph, void* parameters) {
  return instantiate_with(exec, graph, parameters, true, real::cuGraphInstantiateWithParams_ptsz,
                          real::cuGraphUpload_ptsz);
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* error_node, int* result) {
  return update(exec, graph,
                [&] { return real::cuGraphExecUpdate(exec, graph, error_node, result); });
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, void* result) {
  return update(exec, graph, [&] { return real::cuGraphExecUpdate_v2(exec, graph, result); });
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
  return run_graph({"cuGraphUpload", exec, {stream, false}}, real::cuGraphUpload);
}

CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) {
  return run_graph({"cuGraphUpload", exec, {stream, true}}, real::cuGraphUpload_ptsz);
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  return run_graph({"cuGraphLaunch", exec, {stream, false}}, real::cuGraphLaunch);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
  return run_graph({"cuGraphLaunch", exec, {stream, true}}, real::cuGraphLaunch_ptsz);
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  Hook hook;
  if (!hook.active()) return real::cuGraphExecDestroy(exec);
  Process& process = hook.process();
  const GraphTable::Graph known = process.graphs.take(exec);
  const CUresult result = real::cuGraphExecDestroy(exec);
  if (result == kSuccess) {
    process.contexts.remove(known.context, ContextTable::graph_bytes, known.bytes);
  } else {
    process.graphs.put_back(exec, known);
  }
  return result;
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
  Hook hook;
  const CUresult result = real::cuDeviceGraphMemTrim(device);
  if (result == kSuccess && hook.active()) {
    settle_pool(hook.process(), key_of(device), nullptr);
  }
  return result;
}

}  // namespace fracgpu::cuda
