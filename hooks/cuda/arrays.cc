// Arrays and mipmapped arrays: tiled memory whose size only the driver knows.
//
// The driver reports the size of a deferred array, which is an array made without memory. So a
// deferred array of the same form is made first, queried, and destroyed. If a driver cannot do
// that, the size is estimated from the form. Sparse and deferred arrays take no memory of their
// own: memory mapped to them is charged when it is created.
//
// Small arrays share the driver's chunks with others, and no call reports their share.
// Driver-reported usage shows what they really took, as overhead.
#include <algorithm>

#include "hooks/cuda/overhead_call.h"
#include "hooks/cuda/streams.h"
#include "shim/charge/linear.h"
#include "shim/charge/overhead.h"
#include "shim/charge/refusal.h"
#include "shim/charge/reservation.h"

namespace fracgpu::cuda {

namespace {

// Bytes of one element: the size of a channel times the number of channels. For compressed formats:
// the size of a block of 4 x 4 elements. (CUarray_format of cuda.h; an unknown format counts as the
// largest.)
uint64_t element_bytes(int format, unsigned int channels) {
  switch (format) {
    case 0x01:  // UNSIGNED_INT8
    case 0x08:  // SIGNED_INT8
      return channels;
    case 0x02:  // UNSIGNED_INT16
    case 0x09:  // SIGNED_INT16
    case 0x10:  // HALF
      return 2ull * channels;
    case 0x03:  // UNSIGNED_INT32
    case 0x0a:  // SIGNED_INT32
    case 0x20:  // FLOAT
      return 4ull * channels;
    case 0xb0:  // NV12: one and a half planes of bytes
      return 2;
    case 0xc0:  // UNORM_INT8X1 ... SNORM_INT16X4
    case 0xc3:
      return 1;
    case 0xc1:
    case 0xc4:
    case 0xc6:
    case 0xc9:
      return 2;
    default:
      return 4ull * std::max(channels, 4u);
  }
}

// An estimate that is not too small, used only if the driver does not report the size. It pads rows
// to tiles larger than those of any hardware that is publicly known (nouveau's: 64 bytes by 8 rows,
// up to 16 of them high).
uint64_t estimate(const CUDA_ARRAY3D_DESCRIPTOR& form, unsigned int levels) {
  constexpr uint64_t kTileBytes = 512, kTileRows = 128;
  const auto round_up = [](uint64_t value, uint64_t step) {
    return (value + step - 1) / step * step;
  };
  // No driver makes larger arrays. The limits only keep the products from overflowing.
  const uint64_t width = std::min<uint64_t>(form.Width, 1 << 20);
  const uint64_t height = std::clamp<uint64_t>(form.Height, 1, 1 << 20);
  const uint64_t depth = std::clamp<uint64_t>(form.Depth, 1, 1 << 16);
  const uint64_t row_bytes =
      round_up(width * element_bytes(form.Format, form.NumChannels), kTileBytes);
  const uint64_t rows = height == 1 ? 1 : round_up(height, std::min(height, kTileRows));
  const uint64_t bytes = row_bytes * rows * depth;
  // All further levels of a mipmap together are smaller than the first.
  return levels > 1 ? 2 * bytes : bytes;
}

bool takes_no_memory(const CUDA_ARRAY3D_DESCRIPTOR& form) {
  return (form.Flags & (kArraySparse | kArrayDeferred)) != 0;
}

// The driver's last answer in this thread: programs make many arrays of one form.
struct Remembered {
  const Process* process = nullptr;
  CUdevice device = -1;
  unsigned int levels = 0;
  CUDA_ARRAY3D_DESCRIPTOR form = {};
  uint64_t bytes = 0;
};
[[gnu::tls_model("initial-exec")]] thread_local Remembered remembered;

bool is_remembered(CUdevice device, const CUDA_ARRAY3D_DESCRIPTOR& form, unsigned int levels) {
  return remembered.process == Process::known() && remembered.device == device &&
         remembered.levels == levels && remembered.form.Width == form.Width &&
         remembered.form.Height == form.Height && remembered.form.Depth == form.Depth &&
         remembered.form.Format == form.Format && remembered.form.NumChannels == form.NumChannels &&
         remembered.form.Flags == form.Flags;
}

// `create(array, form)` makes an array. `ask(needs, array)` and `destroy(array)` call the driver.
// `levels` is 0 for an array without mipmaps.
template <typename Array, typename Create, typename Ask, typename Destroy>
uint64_t size_of(CUdevice device, const CUDA_ARRAY3D_DESCRIPTOR& form, unsigned int levels,
                 Create create, Ask ask, Destroy destroy) {
  if (is_remembered(device, form, levels)) return remembered.bytes;
  const OwnCalls own_calls;
  CUDA_ARRAY3D_DESCRIPTOR deferred = form;
  deferred.Flags |= kArrayDeferred;
  Array array = nullptr;
  CUDA_ARRAY_MEMORY_REQUIREMENTS needs = {};
  if (create(&array, &deferred) != kSuccess) return estimate(form, levels);
  const CUresult result = ask(&needs, array);
  destroy(array);
  if (result != kSuccess) return estimate(form, levels);
  remembered = {Process::known(), device, levels, form, needs.size};
  return needs.size;
}

uint64_t size_of_plain(CUdevice device, const CUDA_ARRAY3D_DESCRIPTOR& form) {
  return size_of<CUarray>(
      device, form, 0, real::cuArray3DCreate_v2,
      [&](auto* needs, CUarray array) {
        return real::cuArrayGetMemoryRequirements(needs, array, device);
      },
      real::cuArrayDestroy);
}

uint64_t size_of_mipmapped(CUdevice device, const CUDA_ARRAY3D_DESCRIPTOR& form,
                           unsigned int levels) {
  return size_of<CUmipmappedArray>(
      device, form, levels,
      [&](CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* wanted) {
        return real::cuMipmappedArrayCreate(array, wanted, levels);
      },
      [&](auto* needs, CUmipmappedArray array) {
        return real::cuMipmappedArrayGetMemoryRequirements(needs, array, device);
      },
      real::cuMipmappedArrayDestroy);
}

// Calls `create()`. `size(device)` is the array's size in bytes, and `destroy(handle)` undoes the
// call.
template <typename Array, typename Size, typename Create, typename Destroy>
CUresult create_array(const char* api, Array* out, const CUDA_ARRAY3D_DESCRIPTOR& form, Size size,
                      Create create, Destroy destroy) {
  Hook hook;
  Context context;
  if (!hook.active() || out == nullptr || takes_no_memory(form) ||
      !current_context(hook.process(), context) || context.device_index == Process::kNotCapped) {
    return create();
  }
  Process& process = hook.process();
  if (context.device_index == Process::kFault) {
    report_fault(process, api);
    return kOutOfMemory;
  }
  const uint64_t bytes = size(context.device);
  const LinearSize needed = linear_size(bytes);
  const Array before = *out;
  // The overhead includes the memory of a small array.
  const auto tell = [&](uint64_t taken) {
    process.recorder.add({.type = ring::Type::allocated,
                          .kind = ring::Kind::array,
                          .device = static_cast<uint8_t>(context.device_index),
                          .address = reinterpret_cast<uint64_t>(*out),
                          .bytes = bytes,
                          .taken = taken,
                          .owner = context.id},
                         api);
  };
  if (needed.shares_chunk && kernel_calls_are_watched(context.device_index)) {
    const CUresult result = take_as_needed(process, context.device_index, {api, bytes}, create);
    if (result == kSuccess) tell(0);
    return result;
  }
  if (needed.shares_chunk) {
    OverheadReservation reservation(process, context.device_index, needed.units, {api, bytes},
                                    OverheadReservation::Kind::array);
    if (!reservation) return kOutOfMemory;
    process.small_arrays.fetch_add(1, std::memory_order_relaxed);
    const CUresult result = create();
    if (result == kOutOfMemory) reservation.refused_by_driver();
    if (result == kSuccess && reservation.made() &&
        record_small_array(process, context, reinterpret_cast<uint64_t>(*out),
                           reservation.unread_since())) {
      tell(0);
      return result;
    }
    process.small_arrays.fetch_sub(1, std::memory_order_relaxed);
    if (result != kSuccess) return result;
  } else {
    Reservation reservation(process, context.device_index, needed.units, {api, bytes});
    if (!reservation) return kOutOfMemory;
    const CUresult result = create();
    if (result == kOutOfMemory) reservation.refused_by_driver();
    if (result != kSuccess) return result;
    if (record_linear(process, reservation, context, reinterpret_cast<uint64_t>(*out), needed)) {
      tell(needed.units * layout::kUnit);
      return result;
    }
  }
  on_own_account(process, [&] { destroy(*out); });
  settle_overhead(process, context.device_index);
  *out = before;
  return kOutOfMemory;
}

template <typename Array, typename Real>
CUresult destroy_array(Array array, const Real& real) {
  Hook hook;
  if (!hook.active()) return real(array);
  Process& process = hook.process();
  Release release(process, reinterpret_cast<uint64_t>(array));
  const uint64_t serial = process.physical.serial();
  const CUresult result = real(array);
  if (result != kSuccess) return result;
  forget_mapped_array(process, array, serial);
  release.done();
  return result;
}

template <typename Descriptor, typename Real>
CUresult create_plain(CUarray* out, const Descriptor* descriptor, const Real& real) {
  const auto create = [&] { return real(out, descriptor); };
  if (descriptor == nullptr) return create();
  CUDA_ARRAY3D_DESCRIPTOR form = {};
  form.Width = descriptor->Width;
  form.Height = descriptor->Height;
  form.Format = descriptor->Format;
  form.NumChannels = descriptor->NumChannels;
  if constexpr (requires { descriptor->Depth; }) {
    form.Depth = descriptor->Depth;
    form.Flags = descriptor->Flags;
  }
  return create_array(
      "cuArrayCreate", out, form, [&](CUdevice device) { return size_of_plain(device, form); },
      create, real::cuArrayDestroy);
}

}  // namespace

CUresult cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* descriptor) {
  return create_plain(array, descriptor, real::cuArrayCreate_v2);
}

CUresult cuArrayCreate(CUarray* array, const CUDA_ARRAY_DESCRIPTOR_v1* descriptor) {
  return create_plain(array, descriptor, real::cuArrayCreate);
}

CUresult cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor) {
  return create_plain(array, descriptor, real::cuArray3DCreate_v2);
}

CUresult cuArray3DCreate(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR_v1* descriptor) {
  return create_plain(array, descriptor, real::cuArray3DCreate);
}

CUresult cuArrayDestroy(CUarray array) {
  return destroy_array(array, real::cuArrayDestroy);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor,
                                unsigned int levels) {
  const auto create = [&] { return real::cuMipmappedArrayCreate(array, descriptor, levels); };
  if (descriptor == nullptr) return create();
  return create_array(
      "cuMipmappedArrayCreate", array, *descriptor,
      [&](CUdevice device) { return size_of_mipmapped(device, *descriptor, levels); }, create,
      real::cuMipmappedArrayDestroy);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
  return destroy_array(array, real::cuMipmappedArrayDestroy);
}

}  // namespace fracgpu::cuda
