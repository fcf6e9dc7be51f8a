// Buffers, images and shared virtual memory.
//
// NVIDIA's ICD takes no memory for a buffer or an image at creation. It takes all of it at the
// first use, on the device of that queue. The first use may be a launch, and launches are not
// hooked. So objects are charged at creation, on each device of the context, and refused with the
// error that the ICD returns at the first use. The charge ends when the ICD has destroyed the
// object. The destructor callback reports that on a thread of the ICD.
#include <algorithm>

#include "hooks/opencl/hook.h"
#include "hooks/opencl/image_size.h"
#include "shim/base/backoff.h"
#include "shim/charge/linear.h"
#include "shim/charge/overhead.h"
#include "shim/charge/reservation.h"

namespace fracgpu::opencl {
namespace {

using Kind = DeferredMemory::Kind;
using Size = DeferredMemory::Size;

// As for CUDA, except that memory taken at once shares no chunk. (535.261.03, by the kernel's
// count.)
Size size_of(uint64_t bytes, Kind kind) {
  const LinearSize size = linear_size(bytes);
  return {kind, size.units, kind == Kind::at_once ? 0 : size.in_chunk};
}

// Waits until the ICD's thread has destroyed a released object, and returns whether it destroyed
// any. Released objects stay charged while that thread is behind. If a long command uses an object,
// the wait fails and is not repeated for that object.
bool await_destruction(DeferredMemory& memory) {
  const uint64_t before = memory.destroyed.load(), released = memory.released.load();
  if (before == released || released == memory.awaited_in_vain.load()) return false;
  Backoff backoff;
  while (memory.destroyed.load() == before) {
    if (backoff.wait_at_most(kLongestFree_ms)) continue;
    memory.awaited_in_vain.store(released);
    return false;
  }
  return true;
}

// The same for contexts: waits a moment if one was just released.
bool await_context(Process& process) {
  if (!context_is_leaving(process)) return false;
  sleep_ms(1);
  return true;
}

// Charges `units` on a device, and reports a refusal.
bool charge_on(Process& process, int device_index, uint64_t units, const AskingCall& call) {
  Reservation reservation(process, device_index, units, call, Reservation::Unasked{});
  Refusal refusal;
  if (!reservation) {
    do {
      settle_ended_contexts(process);
      refusal = {};
    } while (!reservation.ask(refusal) && refusal.fault.empty() &&
             (await_destruction(process.deferred_memory) || await_context(process)));
  }
  if (!reservation) reservation.refuse(refusal);
  return reservation.take() == units && units > 0;
}

void give_back_on(Process& process, const Devices& devices, uint64_t units) {
  if (units == 0) return;
  for_each(devices, [&](int device_index) { give_back(process, device_index, units, false); });
}

// Charges all of the devices or none.
bool charge(Process& process, const Devices& devices, uint64_t units, const AskingCall& call) {
  Devices charged;
  bool granted = true;
  for_each(devices, [&](int device_index) {
    granted = granted && charge_on(process, device_index, units, call);
    if (granted) charged[static_cast<size_t>(device_index)] = true;
  });
  if (!granted) give_back_on(process, charged, units);
  return granted;
}

}  // namespace

DeferredMemory::Block* make_block(Process& process, DeferredMemory::Context& context,
                                  const Size& size, const AskingCall& call) {
  if (context.is_faulty) {
    report_fault(process, call.api);
    return nullptr;
  }
  DeferredMemory& memory = process.deferred_memory;
  if (DeferredMemory::Block* const block = memory.add_in_hole(context, size)) return block;
  if (!charge(process, context.devices, size.units, call)) return nullptr;
  bool shares = false;
  DeferredMemory::Block* const block = memory.add(context, size, shares);
  if (block == nullptr || shares) give_back_on(process, context.devices, size.units);
  return block;
}

void drop_block(Process& process, DeferredMemory::Block* block) {
  const Devices devices = block->context->devices;  // of a context that may end with the block
  give_back_on(process, devices, process.deferred_memory.remove(block));
}

void drop_block_later(Process& process, DeferredMemory::Block* block) {
  const Devices devices = block->context->devices;
  const uint64_t units = process.deferred_memory.remove(block);
  for_each(devices,
           [&](int device_index) { defer_to_reported_usage(process, device_index, units); });
}

namespace {

// Runs on a thread of the driver, which has already given the memory back.
void note_destruction(cl_mem, void* user_data) {
  auto* const block = static_cast<DeferredMemory::Block*>(user_data);
  Process* const process = Process::known();
  if (process == nullptr || process != block->context->process) return;
  drop_block(*process, block);
}

// Calls `create(error)`, which makes a buffer or an image of `bytes`.
template <typename Create>
cl_mem create_memory(const AskingCall& call, cl_context context, uint64_t bytes, Kind kind,
                     cl_int* error, Create create) {
  Hook hook;
  DeferredMemory::Context* const known =
      hook.active() && bytes > 0 ? context_of(hook.process(), context) : nullptr;
  if (known == nullptr) return create(error);
  Process& process = hook.process();
  DeferredMemory::Block* const block = make_block(process, *known, size_of(bytes, kind), call);
  if (block == nullptr) return refuse(error, kAllocationFailure);
  const cl_mem memory = create(error);
  if (memory == nullptr) {
    drop_block(process, block);
    return nullptr;
  }
  const auto tell = reinterpret_cast<void*>(&note_destruction);
  // Entered before another thread can release the object, and so remove it.
  process.deferred_memory.enter_address(reinterpret_cast<uint64_t>(memory), block);
  if (real::clSetMemObjectDestructorCallback(memory, tell, block) == kSuccess) return memory;
  real::clReleaseMemObject(memory);
  drop_block(process, block);
  return refuse(error, kOutOfHostMemory);
}

// An image made from another object takes no memory.
uint64_t bytes_of(const cl_image_format* format, const cl_image_desc* description) {
  if (format == nullptr || description == nullptr || description->mem_object != nullptr) return 0;
  return image_bytes(*format, *description);
}

uint64_t bytes_of(const cl_image_format* format, cl_uint type, size_t width, size_t height,
                  size_t depth) {
  cl_image_desc description{};
  description.image_type = type;
  description.image_width = width;
  description.image_height = height;
  description.image_depth = depth;
  return bytes_of(format, &description);
}

// The properties show whether the memory is imported. The exporter is charged for imported memory.
constexpr cl_mem_properties kExternalHandles = 0x2060, kExternalHandlesEnd = 0x2070;
bool is_imported(const cl_mem_properties* properties) {
  for (; properties != nullptr && *properties != 0; properties += 2) {
    if (*properties >= kExternalHandles && *properties < kExternalHandlesEnd) return true;
  }
  return false;
}

}  // namespace

cl_mem clCreateBuffer(cl_context context, cl_bitfield flags, size_t bytes, void* host,
                      cl_int* error) {
  return create_memory(
      {"clCreateBuffer", bytes}, context, bytes, Kind::linear, error,
      [&](cl_int* result) { return real::clCreateBuffer(context, flags, bytes, host, result); });
}

cl_mem clCreateBufferWithProperties(cl_context context, const cl_mem_properties* properties,
                                    cl_bitfield flags, size_t bytes, void* host, cl_int* error) {
  return create_memory(
      {"clCreateBufferWithProperties", bytes}, context, is_imported(properties) ? 0 : bytes,
      Kind::linear, error, [&](cl_int* result) {
        return real::clCreateBufferWithProperties(context, properties, flags, bytes, host, result);
      });
}

cl_mem clCreateBufferNV(cl_context context, cl_bitfield flags, cl_bitfield flags_nv, size_t bytes,
                        void* host, cl_int* error) {
  const auto real = reinterpret_cast<decltype(&clCreateBufferNV)>(original_create_buffer_nv.load());
  return create_memory(
      {"clCreateBufferNV", bytes}, context, bytes, Kind::linear, error,
      [&](cl_int* result) { return real(context, flags, flags_nv, bytes, host, result); });
}

cl_mem clCreatePipe(cl_context context, cl_bitfield flags, cl_uint packet_bytes, cl_uint packets,
                    const intptr_t* properties, cl_int* error) {
  const uint64_t bytes = uint64_t{packet_bytes} * packets;
  return create_memory(
      {"clCreatePipe", bytes}, context, bytes, Kind::linear, error, [&](cl_int* result) {
        return real::clCreatePipe(context, flags, packet_bytes, packets, properties, result);
      });
}

cl_mem clCreateImage(cl_context context, cl_bitfield flags, const cl_image_format* format,
                     const cl_image_desc* description, void* host, cl_int* error) {
  const uint64_t bytes = bytes_of(format, description);
  return create_memory(
      {"clCreateImage", bytes}, context, bytes, Kind::image, error, [&](cl_int* result) {
        return real::clCreateImage(context, flags, format, description, host, result);
      });
}

cl_mem clCreateImageWithProperties(cl_context context, const cl_mem_properties* properties,
                                   cl_bitfield flags, const cl_image_format* format,
                                   const cl_image_desc* description, void* host, cl_int* error) {
  const uint64_t bytes = is_imported(properties) ? 0 : bytes_of(format, description);
  return create_memory({"clCreateImageWithProperties", bytes}, context, bytes, Kind::image, error,
                       [&](cl_int* result) {
                         return real::clCreateImageWithProperties(
                             context, properties, flags, format, description, host, result);
                       });
}

cl_mem clCreateImage2D(cl_context context, cl_bitfield flags, const cl_image_format* format,
                       size_t width, size_t height, size_t row_pitch, void* host, cl_int* error) {
  const uint64_t bytes = bytes_of(format, kImage2d, width, height, 1);
  return create_memory({"clCreateImage2D", bytes}, context, bytes, Kind::image, error,
                       [&](cl_int* result) {
                         return real::clCreateImage2D(context, flags, format, width, height,
                                                      row_pitch, host, result);
                       });
}

cl_mem clCreateImage3D(cl_context context, cl_bitfield flags, const cl_image_format* format,
                       size_t width, size_t height, size_t depth, size_t row_pitch,
                       size_t slice_pitch, void* host, cl_int* error) {
  const uint64_t bytes = bytes_of(format, kImage3d, width, height, depth);
  return create_memory({"clCreateImage3D", bytes}, context, bytes, Kind::image, error,
                       [&](cl_int* result) {
                         return real::clCreateImage3D(context, flags, format, width, height, depth,
                                                      row_pitch, slice_pitch, host, result);
                       });
}

cl_int clReleaseMemObject(cl_mem memory) {
  const Hook hook;
  if (!hook.active()) return real::clReleaseMemObject(memory);
  cl_uint references = 0;
  const bool is_last = real::clGetMemObjectInfo(memory, kMemoryReferences, sizeof references,
                                                &references, nullptr) == kSuccess &&
                       references == 1;
  if (is_last) hook.process().deferred_memory.take(reinterpret_cast<uint64_t>(memory), true);
  const cl_int result = real::clReleaseMemObject(memory);
  settle_ended_contexts(hook.process());
  return result;
}

void* clSVMAlloc(cl_context context, cl_bitfield flags, size_t bytes, cl_uint alignment) {
  Hook hook;
  DeferredMemory::Context* const known =
      hook.active() && bytes > 0 ? context_of(hook.process(), context) : nullptr;
  if (known == nullptr) return real::clSVMAlloc(context, flags, bytes, alignment);
  Process& process = hook.process();
  DeferredMemory::Block* const block =
      make_block(process, *known, size_of(bytes, Kind::at_once), {"clSVMAlloc", bytes});
  if (block == nullptr) return nullptr;
  void* const memory = real::clSVMAlloc(context, flags, bytes, alignment);
  if (memory != nullptr &&
      process.deferred_memory.enter_address(reinterpret_cast<uint64_t>(memory), block)) {
    return memory;
  }
  if (memory != nullptr) real::clSVMFree(context, memory);
  drop_block(process, block);
  return nullptr;
}

void clSVMFree(cl_context context, void* memory) {
  const Hook hook;
  // This must precede the call: the address may then belong to another allocation.
  DeferredMemory::Block* const block =
      hook.active() ? hook.process().deferred_memory.take(reinterpret_cast<uint64_t>(memory), false)
                    : nullptr;
  real::clSVMFree(context, memory);
  if (block != nullptr) drop_block(hook.process(), block);
}

// The memory is freed when the command runs. The next reading shows it.
cl_int clEnqueueSVMFree(cl_command_queue queue, cl_uint count, void** memory, void* free,
                        void* user_data, cl_uint events, const cl_event* wait_for,
                        cl_event* event) {
  const Hook hook;
  const cl_int result =
      real::clEnqueueSVMFree(queue, count, memory, free, user_data, events, wait_for, event);
  if (result != kSuccess || !hook.active() || free != nullptr) return result;
  Process& process = hook.process();
  for (cl_uint i = 0; i < count; ++i) {
    DeferredMemory::Block* const block =
        process.deferred_memory.take(reinterpret_cast<uint64_t>(memory[i]), false);
    if (block != nullptr) drop_block_later(process, block);
  }
  return result;
}

}  // namespace fracgpu::opencl
