// Contexts and queues are made under a reservation and charged by driver-reported usage.
//
// A context takes hundreds of MiB on each of its devices. It ends with the last object in it. See
// hooks/cuda/context.cc.
#include "hooks/cuda/context_size.h"
#include "hooks/opencl/hook.h"
#include "shim/charge/in_flight.h"
#include "shim/charge/linear.h"
#include "shim/charge/overhead.h"

namespace fracgpu::opencl {
namespace {

constexpr uint64_t kPageUnits = kPageBytes / layout::kUnit;

// The estimate for the device with the most multiprocessors.
uint64_t estimated_context(size_t count, const cl_device_id* devices) {
  int most = 0;
  for (size_t i = 0; i < count; ++i) {
    int multiprocessors = 0;
    real::clGetDeviceInfo(devices[i], kComputeUnits, sizeof multiprocessors, &multiprocessors,
                          nullptr);
    most = std::max(most, multiprocessors);
  }
  return layout::units_for(cuda::most_context_bytes(most));
}

// Runs on a thread of the driver, which may not have given the memory back yet.
void note_end(cl_context, void* user_data) {
  auto* const context = static_cast<DeferredMemory::Context*>(user_data);
  Process* const process = Process::known();
  if (process == nullptr || process != context->process) return;
  for_each(context->devices, [&](int device_index) {
    Overhead& overhead = process->overhead[device_index];
    overhead.contexts_ended.fetch_add(1);
    overhead.read_again_ms.store(0, std::memory_order_relaxed);
  });
  while (DeferredMemory::Block* const block = context->local_memory) {
    context->local_memory = block->next;
    drop_block_later(*process, block);
  }
  process->deferred_memory.drop(context);
  process->deferred_memory.context_left_ms.store(coarse_now_ms());
  process->deferred_memory.any_context_ended.store(true);
}

class NewContext {
 public:
  NewContext(Process& process, const char* api, uint64_t estimate, const Devices& devices)
      : process_(process), api_(api), estimate_(estimate), devices_(devices) {}

  // Calls `make()`, which makes the context, under reservations on all devices from `device` on.
  template <typename Make>
  cl_context make_on(size_t device, cl_int* error, Make make) {
    while (device < devices_.size() && !devices_[device]) ++device;
    if (device == devices_.size()) return make(error);
    const int device_index = static_cast<int>(device);
    OverheadReservation reservation =
        OverheadReservation::for_context(process_, device_index, api_, estimate_);
    if (!reservation) return refuse(error, kOutOfHostMemory);
    const cl_context context = make_on(device + 1, error, make);
    if (context == nullptr || reservation.made()) return context;
    real::clReleaseContext(context);
    // The devices after this one are already charged.
    for_each(devices_ >> device << device,
             [&](int charged) { settle_after_destroy(process_, charged, estimate_); });
    return refuse(error, kOutOfHostMemory);
  }

 private:
  Process& process_;
  const char* api_;
  uint64_t estimate_;
  const Devices& devices_;
};

template <typename Make>
cl_context make_context(const char* api, size_t count, const cl_device_id* devices, cl_int* error,
                        const Hook& hook, Make make) {
  if (!hook.active() || count == 0 || devices == nullptr) return make(error);
  Process& process = hook.process();
  settle_ended_contexts(process);
  bool is_faulty = false;
  const Devices capped = devices_of(process, count, devices, is_faulty);
  if (is_faulty) {
    report_fault(process, api);
    return refuse(error, kOutOfHostMemory);
  }
  if (capped.none()) return make(error);
  NewContext request(process, api, estimated_context(count, devices), capped);
  const cl_context context = request.make_on(0, error, make);
  if (context == nullptr) return nullptr;
  DeferredMemory::Context* const known =
      process.deferred_memory.enter(process, context, capped, false);
  if (known != nullptr && real::clSetContextDestructorCallback.exists()) {
    known->tells_end = real::clSetContextDestructorCallback(
                           context, reinterpret_cast<void*>(&note_end), known) == kSuccess;
  }
  return context;
}

template <typename Make>
cl_command_queue make_queue(const char* api, cl_context context, cl_device_id device, cl_int* error,
                            Make make) {
  Hook hook;
  DeferredMemory::Context* const known =
      hook.active() ? context_of(hook.process(), context) : nullptr;
  const int device_index = known != nullptr ? device_index_of(hook.process(), device) : -1;
  if (device_index < 0) return make(error);
  Process& process = hook.process();
  const uint32_t number = process.deferred_memory.add_queue(*known, device_index);
  const uint64_t pages = number > 0 ? cuda::pages_of_stream(number) : 0;
  if (pages == 0) {
    const cl_command_queue queue = make(error);
    if (queue == nullptr) process.deferred_memory.remove_queue(*known, device_index);
    return queue;
  }
  OverheadReservation reservation(process, device_index, pages * kPageUnits, api);
  const cl_command_queue queue = reservation ? make(error) : refuse(error, kOutOfHostMemory);
  if (queue != nullptr && reservation.made()) return queue;
  process.deferred_memory.cancel_queue(*known, device_index);
  if (queue == nullptr) return nullptr;
  real::clReleaseCommandQueue(queue);
  settle_overhead(process, device_index);
  return refuse(error, kOutOfHostMemory);
}

}  // namespace

bool context_is_leaving(Process& process) {
  return coarse_now_ms() - process.deferred_memory.context_left_ms.load() < kLongestFree_ms;
}

void settle_ended_contexts(Process& process) {
  if (!process.deferred_memory.any_context_ended.load(std::memory_order_relaxed) ||
      !process.deferred_memory.any_context_ended.exchange(false)) {
    return;
  }
  layout::for_each_device(*process.ledger.map(), [&](uint32_t device) {
    Overhead& overhead = process.overhead[device];
    for (uint32_t ended = overhead.contexts_ended.exchange(0); ended > 0; --ended) {
      const uint64_t before = overhead.units.load();
      settle_after_destroy(process, static_cast<int>(device),
                           layout::units_for(cuda::most_context_bytes(0)));
      if (overhead.units.load() < before || !context_is_leaving(process)) continue;
      overhead.contexts_ended.fetch_add(1);
      process.deferred_memory.any_context_ended.store(true);
    }
  });
}

cl_context clCreateContext(const cl_context_properties* properties, cl_uint count,
                           const cl_device_id* devices, void* notify, void* user_data,
                           cl_int* error) {
  const Hook hook;
  return make_context("clCreateContext", count, devices, error, hook, [&](cl_int* result) {
    return real::clCreateContext(properties, count, devices, notify, user_data, result);
  });
}

cl_context clCreateContextFromType(const cl_context_properties* properties, cl_bitfield type,
                                   void* notify, void* user_data, cl_int* error) {
  const Hook hook;
  cl_platform_id platform = nullptr;
  for (const cl_context_properties* each = properties; each != nullptr && *each != 0; each += 2) {
    if (each[0] == kContextPlatform) platform = reinterpret_cast<cl_platform_id>(each[1]);
  }
  cl_device_id devices[Process::kSlotsOfVendor] = {};
  cl_uint count = 0;
  if (hook.active()) real::clGetDeviceIDs(platform, type, Process::kSlotsOfVendor, devices, &count);
  return make_context("clCreateContextFromType", count, devices, error, hook, [&](cl_int* result) {
    return real::clCreateContextFromType(properties, type, notify, user_data, result);
  });
}

cl_int clReleaseContext(cl_context context) {
  const Hook hook;
  const cl_int result = real::clReleaseContext(context);
  if (!hook.active()) return result;
  hook.process().deferred_memory.context_left_ms.store(coarse_now_ms());
  settle_ended_contexts(hook.process());
  return result;
}

cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id device,
                                      cl_bitfield properties, cl_int* error) {
  return make_queue("clCreateCommandQueue", context, device, error, [&](cl_int* result) {
    return real::clCreateCommandQueue(context, device, properties, result);
  });
}

cl_command_queue clCreateCommandQueueWithProperties(cl_context context, cl_device_id device,
                                                    const cl_bitfield* properties, cl_int* error) {
  return make_queue(
      "clCreateCommandQueueWithProperties", context, device, error, [&](cl_int* result) {
        return real::clCreateCommandQueueWithProperties(context, device, properties, result);
      });
}

cl_int clReleaseCommandQueue(cl_command_queue queue) {
  const Hook hook;
  if (!hook.active()) return real::clReleaseCommandQueue(queue);
  Process& process = hook.process();
  cl_uint references = 0;
  cl_context context = nullptr;
  cl_device_id device = nullptr;
  const auto ask = [&](cl_uint name, auto& value) {
    return real::clGetCommandQueueInfo(queue, name, sizeof value, &value, nullptr) == kSuccess;
  };
  const bool is_last = ask(kQueueReferences, references) && references == 1 &&
                       ask(kQueueContext, context) && ask(kQueueDevice, device);
  DeferredMemory::Context* const known = is_last ? context_of(process, context) : nullptr;
  const int device_index = known != nullptr ? device_index_of(process, device) : -1;
  if (device_index >= 0) process.deferred_memory.remove_queue(*known, device_index);
  const cl_int result = real::clReleaseCommandQueue(queue);
  settle_ended_contexts(process);
  return result;
}

}  // namespace fracgpu::opencl
