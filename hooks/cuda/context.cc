// Contexts are made under a reservation and charged by driver-reported usage. When a context is
// destroyed, all memory in it is destroyed too.
//
// A context takes hundreds of MiB that no call requests explicitly. Its size is known only
// afterwards, from the driver's count for this process. If it does not fit under the cap, the
// context is destroyed again, and the caller gets an ordinary out-of-memory error.
#include "hooks/cuda/context_size.h"
#include "hooks/cuda/overhead_call.h"
#include "shim/charge/in_flight.h"
#include "shim/charge/linear.h"
#include "shim/charge/overhead.h"
#include "shim/charge/refusal.h"

namespace fracgpu::cuda {
namespace {

// In units. Reserved for the first context on a device. It is also charged if neither the driver's
// count for this process nor the growth of the device's usage is available. tests/hardware.sh
// measures contexts, as context.first_bytes.
uint64_t estimated_context(const Process& process, CUdevice device) {
  const OwnCalls own_calls(process);
  int multiprocessors = 0;
  real::cuDeviceGetAttribute(&multiprocessors, kMultiprocessors, device);
  return layout::units_for(most_context_bytes(multiprocessors));
}

bool primary_is_active(const Process& process, CUdevice device) {
  const OwnCalls own_calls(process);
  unsigned int flags = 0;
  int active = 0;
  return real::cuDevicePrimaryCtxGetState(device, &flags, &active) == kSuccess && active != 0;
}

// How often the program has retained the primary context, which the driver does not report. Null if
// the device does not exist. The caller holds `Process::lifetimes`.
uint32_t* retains_of(Process& process, CUdevice device) {
  const bool exists = device >= 0 && device < Process::kSlotsOfVendor;
  return exists ? &process.primary_retains[device] : nullptr;
}

CUresult release_primary(CUdevice device) {
  return real::cuDevicePrimaryCtxRelease_v2.exists() ? real::cuDevicePrimaryCtxRelease_v2(device)
                                                     : real::cuDevicePrimaryCtxRelease(device);
}

// Calls `make()`, which makes a context on the device. `unmake()` undoes it.
template <typename Make, typename Unmake>
CUresult make_context(Hook& hook, const char* api, CUcontext* out, CUdevice device, Make make,
                      Unmake unmake) {
  if (!hook.active() || out == nullptr) return make();
  Process& process = hook.process();
  const int device_index = device_index_of(process, device);
  if (device_index == Process::kNotCapped) return make();
  if (device_index == Process::kFault) {
    report_fault(process, api);
    return kOutOfMemory;
  }
  const uint64_t estimate = estimated_context(process, device);
  OverheadReservation reservation =
      OverheadReservation::for_context(process, device_index, api, estimate);
  if (!reservation) return kOutOfMemory;
  const CUcontext before = *out;
  const CUresult result = take_under(reservation, process, device_index, api, make);
  if (result != kSuccess) return result;
  if (!reservation.made()) {
    on_own_account(process, unmake);
    settle_after_destroy(process, device_index, estimate);
    *out = before;
    return kOutOfMemory;
  }
  // Another context may have had this handle and ended unnoticed.
  Context stale;
  process.contexts.forget(*out, stale);
  process.contexts.forget_alias(*out);
  process.contexts.enter(*out, device, device_index);
  return result;
}

template <typename Make>
CUresult create_context(CUcontext* out, CUdevice device, Make make) {
  Hook hook;
  return make_context(hook, "cuCtxCreate", out, device, make, [&] { real::cuCtxDestroy_v2(*out); });
}

// Calls `end()`, which may destroy the context with this handle. `end()` sets `ended` if it did. It
// is not `likely` to do so if the program still needs the context.
template <typename End>
CUresult end_context(Process& process, const void* handle, bool likely, End end) {
  Context context;
  bool ended = false;
  CUresult result = kSuccess;
  finish_unmaps(process);  // no stream can be asked about its unmappings once the epoch has changed
  {
    const InFlightScope in_flight(process);
    const bool known = process.contexts.begin_drop(handle, context);
    if (likely) {
      process.contexts.expire();
      process.graphs.forget_streams();
      process.streams.await_waits();  // for a stream of the context; see wait_for_other
    }
    result = end(ended);
    ended = ended && known;
    if (ended) {
      process.contexts.finish_drop(context);
      release_context(process, context);
    } else if (known) {
      process.contexts.abandon_drop(context);
    }
  }
  if (ended && context.device_index >= 0) {
    settle_after_destroy(process, context.device_index, estimated_context(process, context.device));
  }
  return result;
}

template <typename Real>
CUresult destroy_context(const Hook& hook, CUcontext context, const Real& real) {
  if (!hook.active()) return real(context);
  return end_context(hook.process(), context, true, [&](bool& ended) {
    const CUresult result = real(context);
    ended = result == kSuccess;
    return result;
  });
}

// Calls `drop()`, which may end the device's primary context. The context has ended if the driver
// reports it as inactive afterwards. Its handle must be looked up before, while the context exists.
// The handle stays the same when the context is made again. So no other thread may make it before
// the outcome of this call is known: the caller holds `Process::lifetimes`.
template <typename Drop>
CUresult drop_primary(Process& process, CUdevice device, bool likely, Drop drop) {
  if (!primary_is_active(process, device)) return drop();
  CUcontext handle = nullptr;
  on_own_account(process, [&] {
    return real::cuDevicePrimaryCtxRetain(&handle, device) == kSuccess ? release_primary(device)
                                                                       : kInvalidValue;
  });
  return end_context(process, handle, likely, [&](bool& ended) {
    const CUresult result = drop();
    ended = result == kSuccess && !primary_is_active(process, device);
    return result;
  });
}

// The program releases or resets the primary context.
template <typename Real>
CUresult drop_primary(CUdevice device, bool is_reset, const Real& real) {
  Hook hook;
  if (!hook.active()) return real(device);
  Process& process = hook.process();
  device_index_of(process, device);  // as in cuDevicePrimaryCtxRetain
  const Locked<SleepLock> alone(process.lifetimes);
  uint32_t* const retains = retains_of(process, device);
  const bool likely = is_reset || retains == nullptr || *retains <= 1;
  return drop_primary(process, device, likely, [&] {
    const CUresult result = real(device);
    if (!is_reset && result == kSuccess && retains != nullptr && *retains > 0) --*retains;
    return result;
  });
}

// The handle of the context that is current while the green context is.
bool context_of_green(const Process& process, CUgreenCtx green, CUcontext& handle) {
  return on_own_account(process,
                        [&] { return real::cuCtxFromGreenCtx(&handle, green) == kSuccess; });
}

}  // namespace

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  Hook hook;
  const auto retain = [&] { return real::cuDevicePrimaryCtxRetain(context, device); };
  if (!hook.active()) return retain();
  // Loads NVML at the device's first use. Not under the lock, because a constructor that the loader
  // runs may wait for that here.
  device_index_of(hook.process(), device);
  // Only the first retain makes the context.
  const Locked<SleepLock> alone(hook.process().lifetimes);
  const CUresult result = primary_is_active(hook.process(), device)
                              ? retain()
                              : make_context(hook, "cuDevicePrimaryCtxRetain", context, device,
                                             retain, [&] { release_primary(device); });
  if (uint32_t* const retains = retains_of(hook.process(), device);
      retains != nullptr && result == kSuccess)
    ++*retains;
  return result;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return drop_primary(device, false, real::cuDevicePrimaryCtxRelease_v2);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return drop_primary(device, false, real::cuDevicePrimaryCtxRelease);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return drop_primary(device, true, real::cuDevicePrimaryCtxReset_v2);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  return drop_primary(device, true, real::cuDevicePrimaryCtxReset);
}

CUresult cuCtxCreate_v4(CUcontext* context, void* params, unsigned int flags, CUdevice device) {
  return create_context(context, device,
                        [&] { return real::cuCtxCreate_v4(context, params, flags, device); });
}

CUresult cuCtxCreate_v3(CUcontext* context, void* affinity, int affinity_count, unsigned int flags,
                        CUdevice device) {
  return create_context(context, device, [&] {
    return real::cuCtxCreate_v3(context, affinity, affinity_count, flags, device);
  });
}

CUresult cuCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device) {
  return create_context(context, device,
                        [&] { return real::cuCtxCreate_v2(context, flags, device); });
}

CUresult cuCtxCreate(CUcontext* context, unsigned int flags, CUdevice device) {
  return create_context(context, device, [&] { return real::cuCtxCreate(context, flags, device); });
}

CUresult cuGLCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device) {
  return create_context(context, device,
                        [&] { return real::cuGLCtxCreate_v2(context, flags, device); });
}

CUresult cuGLCtxCreate(CUcontext* context, unsigned int flags, CUdevice device) {
  return create_context(context, device,
                        [&] { return real::cuGLCtxCreate(context, flags, device); });
}

CUresult cuVDPAUCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device,
                             uint32_t vdp_device, void* vdp_get_proc_address) {
  return create_context(context, device, [&] {
    return real::cuVDPAUCtxCreate_v2(context, flags, device, vdp_device, vdp_get_proc_address);
  });
}

CUresult cuVDPAUCtxCreate(CUcontext* context, unsigned int flags, CUdevice device,
                          uint32_t vdp_device, void* vdp_get_proc_address) {
  return create_context(context, device, [&] {
    return real::cuVDPAUCtxCreate(context, flags, device, vdp_device, vdp_get_proc_address);
  });
}

CUresult cuCtxDestroy_v2(CUcontext context) {
  return destroy_context(Hook(), context, real::cuCtxDestroy_v2);
}

CUresult cuCtxDestroy(CUcontext context) {
  return destroy_context(Hook(), context, real::cuCtxDestroy);
}

CUresult cuCtxAttach(CUcontext* context, unsigned int flags) {
  Hook hook;
  const CUresult result = real::cuCtxAttach(context, flags);
  if (result == kSuccess && hook.active()) hook.process().contexts.attach(*context, 1);
  return result;
}

CUresult cuCtxDetach(CUcontext context) {
  Hook hook;
  if (!hook.active()) return real::cuCtxDetach(context);
  ContextTable& contexts = hook.process().contexts;
  const bool is_last = contexts.attach(context, -1) == 0;
  const CUresult result =
      is_last ? destroy_context(hook, context, real::cuCtxDetach) : real::cuCtxDetach(context);
  if (result != kSuccess) contexts.attach(context, 1);
  return result;
}

// A green context retains the device's primary context and has no memory of its own: memory
// allocated while it is current belongs to the primary context. So the primary context is made
// first if it does not exist yet. The green context's handle is entered as its alias.
CUresult cuGreenCtxCreate(CUgreenCtx* green, void* description, CUdevice device,
                          unsigned int flags) {
  Hook hook;
  const auto create = [&] { return real::cuGreenCtxCreate(green, description, device, flags); };
  if (!hook.active() || green == nullptr) return create();
  Process& process = hook.process();
  const int device_index = device_index_of(process, device);
  if (device_index == Process::kNotCapped) return create();
  const Locked<SleepLock> alone(process.lifetimes);
  CUcontext primary = nullptr, handle = nullptr;
  const auto retain = [&] {
    return on_own_account(process,
                          [&] { return real::cuDevicePrimaryCtxRetain(&primary, device); });
  };
  const auto release = [&] {
    return on_own_account(process, [&] { return release_primary(device); });
  };
  CUresult result = primary_is_active(process, device)
                        ? retain()
                        : make_context(hook, "cuGreenCtxCreate", &primary, device, retain, release);
  if (result != kSuccess) return result;
  const CUgreenCtx before = *green;
  result = take_code(process, device_index, "cuGreenCtxCreate", 0, create, [&] {
    real::cuGreenCtxDestroy(*green);
    *green = before;
  });
  if (result == kSuccess && context_of_green(process, *green, handle))
    process.contexts.enter_alias(handle, process.contexts.enter(primary, device, device_index));
  // From here on the green context retains the primary one. If it was not created, the primary
  // context may end.
  drop_primary(process, device, result != kSuccess, release);
  return result;
}

CUresult cuGreenCtxDestroy(CUgreenCtx green) {
  Hook hook;
  const auto destroy = [&] { return real::cuGreenCtxDestroy(green); };
  CUcontext handle = nullptr;
  Context context;
  if (!hook.active() || !context_of_green(hook.process(), green, handle) ||
      !hook.process().contexts.find(handle, context)) {
    return destroy();
  }
  Process& process = hook.process();
  const Locked<SleepLock> alone(process.lifetimes);
  const uint32_t* const retains = retains_of(process, context.device);
  // This must precede the call: the driver may give the handle to another context at once.
  process.contexts.forget_alias(handle);
  const CUresult result =
      drop_primary(process, context.device, retains == nullptr || *retains == 0, destroy);
  if (result != kSuccess) {
    process.contexts.enter_alias(handle, context);
  } else if (context.device_index >= 0) {
    settle_overhead(process, context.device_index);
  }
  return result;
}

}  // namespace fracgpu::cuda
