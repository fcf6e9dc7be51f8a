// Virtual memory management: memory is charged when a handle is made. It is given back when the
// last reference, mapping and binding of it are gone.
//
// Imported handles are other processes' memory, and reserved addresses are not memory at all: both
// cost nothing. Host memory costs nothing either, whichever call makes it.
#include <algorithm>

#include "hooks/cuda/kernel.h"
#include "hooks/cuda/streams.h"
#include "shim/charge/in_flight.h"
#include "shim/charge/linear.h"
#include "shim/charge/refusal.h"
#include "shim/charge/reservation.h"
#include "shim/charge/vmm_calls.h"

namespace fracgpu::cuda {
namespace {

// The key of a piece of a sparse array, as it is mapped and unmapped, from every field of its
// position.
uint64_t piece_key(const CUarrayMapInfo& info) {
  uint64_t hash = reinterpret_cast<uint64_t>(info.resource.array);
  const auto mix = [&](uint64_t value) { hash = hash_of(hash ^ value) + value; };
  mix(static_cast<uint64_t>(info.subresourceType));
  if (info.subresourceType == kMiptail) {
    mix(info.subresource.miptail.layer);
    mix(info.subresource.miptail.offset);
    mix(info.subresource.miptail.size);
  } else {
    const auto& level = info.subresource.sparseLevel;
    for (const unsigned value :
         {level.level, level.layer, level.offsetX, level.offsetY, level.offsetZ, level.extentWidth,
          level.extentHeight, level.extentDepth}) {
      mix(value);
    }
  }
  return hash | uint64_t{3} << 62;
}

template <typename Real>
CUresult map_array(CUarrayMapInfo* list, unsigned int count, const Stream& stream,
                   const Real& real) {
  Hook hook;
  if (!hook.active() || list == nullptr) return real(list, count, stream.handle);
  Process& process = hook.process();
  Context context;
  if (!context_of(process, stream, context)) context.id = kUntrackedContext;
  const InFlightScope in_flight(process);
  const uint64_t serial = process.physical.serial();
  const CUresult result = real(list, count, stream.handle);
  if (result != kSuccess) return result;
  const auto ends_mapping = [&](const CUarrayMapInfo& info) {
    return info.memOperationType == kOperationUnmap || process.physical.is_mapped(piece_key(info));
  };
  // The driver keeps memory that is unmapped or replaced until the stream reaches the operation.
  const bool ends = std::any_of(list, list + count, ends_mapping);
  const bool captures = ends && is_capturing(process, stream);
  bool lingers = captures;
  BusyStream busy;
  if (ends && !captures && !is_idle(process, stream)) {
    busy = busy_stream(process, stream, context);
    lingers = busy.ask == nullptr;
  }
  const auto gone = [&](const PhysicalTable::Freed& freed) { give_back(process, freed); };
  for (unsigned int i = 0; i < count; ++i) {
    const CUarrayMapInfo& info = list[i];
    const uint64_t key = piece_key(info), array = reinterpret_cast<uint64_t>(info.resource.array);
    if (lingers) process.physical.linger(key);
    if (info.memOperationType == kOperationMap) {
      const uint64_t memory = process.physical.memory_of(info.memHandle.memHandle);
      gone(process.physical.add_mapping(key, PhysicalTable::kBindingStep, memory, array, context.id,
                                        busy));
    } else if (info.memOperationType == kOperationUnmap && process.physical.is_mapped(key)) {
      process.physical.drop_mappings(key, PhysicalTable::kBindingStep, serial, gone, busy);
    } else if (info.memOperationType == kOperationUnmap) {
      // It was mapped in other pieces. A reading shows how much of them the array still keeps.
      process.physical.linger_owned(array);
      process.physical.drop_owned(array, serial, gone);
    }
  }
  return result;
}

// Remembers that `memory` is bound to a multicast object. Each device of its team has its own
// bindings, so the memory's device is part of the key.
void enter_binding(Process& process, CUmemGenericAllocationHandle multicast, CUdevice device,
                   size_t offset, size_t size, uint64_t memory) {
  const uint64_t object = process.physical.memory_of(multicast);
  if (object == 0 || memory == 0) return;
  give_back(process,
            process.physical.add_mapping(PhysicalTable::binding_key(object, device, offset), size,
                                         memory, PhysicalTable::owner_key(object)));
}

// Calls `call()`, which binds memory to a multicast object. `find(Process&, CUdevice&)` returns the
// number of that memory, and sets the device that it is bound on.
template <typename Call, typename Find>
CUresult bind(CUmemGenericAllocationHandle multicast, size_t offset, size_t size, Call call,
              Find find) {
  Hook hook;
  const CUresult result = call();
  if (result != kSuccess || !hook.active()) return result;
  CUdevice device = 0;
  const uint64_t memory = find(hook.process(), device);
  enter_binding(hook.process(), multicast, device, offset, size, memory);
  return result;
}

int descriptor_of(void* os_handle) {
  return static_cast<int>(reinterpret_cast<intptr_t>(os_handle));
}

}  // namespace

void forget_mapped_array(Process& process, const void* array, uint64_t serial) {
  process.physical.drop_owned(
      reinterpret_cast<uint64_t>(array), serial,
      [&](const PhysicalTable::Freed& freed) { give_back(process, freed); });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* properties, unsigned long long flags) {
  Hook hook;
  const auto create = [&] { return real::cuMemCreate(handle, size, properties, flags); };
  if (!hook.active() || handle == nullptr || properties == nullptr || size == 0) return create();
  Process& process = hook.process();
  const int device_index = device_index_of(process, device_of(properties->location));
  if (device_index == Process::kNotCapped) return create();
  if (device_index == Process::kFault) {
    report_fault(process, "cuMemCreate");
    return kOutOfMemory;
  }
  const uint64_t units = layout::units_for(size);
  Reservation reservation(process, device_index, units, {"cuMemCreate", size});
  if (!reservation) return kOutOfMemory;
  const CUmemGenericAllocationHandle before = *handle;
  return make_physical(
      process, reservation, units, kOutOfMemory, create, [&] { return *handle; },
      [&] {
        on_own_account(process, [&] { real::cuMemRelease(*handle); });
        *handle = before;
      });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  Hook hook;
  const auto release = [&] { return real::cuMemRelease(handle); };
  if (!hook.active()) return release();
  Process& process = hook.process();
  const uint64_t before = asked_units_given_back();
  return release_physical(process, handle, release, [&](uint64_t memory) {
    // libcuda 535 and 550 free RM's object at once if the memory is mapped to an array, and with
    // its last mapping if it is mapped to addresses.
    if (asked_units_given_back() != before) process.physical.note_object_gone(memory);
  });
}

CUresult cuMemMap(CUdeviceptr pointer, size_t size, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  Hook hook;
  const auto map = [&] { return real::cuMemMap(pointer, size, offset, handle, flags); };
  return hook.active() ? map_physical(hook.process(), pointer, size, handle, map) : map();
}

CUresult cuMemUnmap(CUdeviceptr pointer, size_t size) {
  Hook hook;
  const auto unmap = [&] { return real::cuMemUnmap(pointer, size); };
  return hook.active() ? unmap_physical(hook.process(), pointer, size, unmap) : unmap();
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  Hook hook;
  const CUresult result = real::cuMemRetainAllocationHandle(handle, address);
  if (result != kSuccess || !hook.active() || handle == nullptr) return result;
  PhysicalTable& physical = hook.process().physical;
  if (const uint64_t memory = physical.memory_at(reinterpret_cast<uint64_t>(address))) {
    physical.add_reference(*handle, memory);
  }
  return result;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* os_handle,
                                        int handle_type) {
  Hook hook;
  const auto import = [&] {
    return real::cuMemImportFromShareableHandle(handle, os_handle, handle_type);
  };
  if (!hook.active() || handle == nullptr) return import();
  Process& process = hook.process();
  const auto import_by = [&](ImportCall&& call) {
    const CUresult result = import();
    const OwnCalls own_calls(process);
    CUmemAllocationProp properties;
    if (result == kSuccess &&
        real::cuMemGetAllocationPropertiesFromHandle(&properties, *handle) == kSuccess) {
      call.imported(*handle, device_index_of(process, device_of(properties.location)), 0);
    }
    return result;
  };
  return handle_type == kFabric
             ? import_by(ImportCall(process, os_handle, sizeof(CUmemFabricHandle)))
             : import_by(ImportCall(process, descriptor_of(os_handle)));
}

CUresult cuMemExportToShareableHandle(void* os_handle, CUmemGenericAllocationHandle handle,
                                      int handle_type, unsigned long long flags) {
  Hook hook;
  const CUresult result = real::cuMemExportToShareableHandle(os_handle, handle, handle_type, flags);
  PhysicalTable::Freed charge;
  if (result == kSuccess && hook.active() && note_exported(hook.process(), handle, charge)) {
    if (handle_type == kFabric)
      note_handle(hook.process(), os_handle, sizeof(CUmemFabricHandle), token_of(charge));
    if (handle_type == kPosixDescriptor) {
      note_descriptor(hook.process(), *static_cast<const int*>(os_handle), charge);
    }
  }
  return result;
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo* list, unsigned int count, CUstream stream) {
  return map_array(list, count, {stream, false}, real::cuMemMapArrayAsync);
}

CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo* list, unsigned int count, CUstream stream) {
  return map_array(list, count, {stream, true}, real::cuMemMapArrayAsync_ptsz);
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle* handle, const void* properties) {
  Hook hook;
  const CUresult result = real::cuMulticastCreate(handle, properties);
  if (result == kSuccess && hook.active() && handle != nullptr) {
    hook.process().physical.add(*handle, 0, 0);
  }
  return result;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle multicast, size_t multicast_offset,
                            CUmemGenericAllocationHandle memory, size_t memory_offset, size_t size,
                            unsigned long long flags) {
  const auto call = [&] {
    return real::cuMulticastBindMem(multicast, multicast_offset, memory, memory_offset, size,
                                    flags);
  };
  return bind(multicast, multicast_offset, size, call, [&](Process& process, CUdevice& device) {
    const OwnCalls own_calls(process);
    CUmemAllocationProp properties;
    if (real::cuMemGetAllocationPropertiesFromHandle(&properties, memory) != kSuccess) {
      return uint64_t{0};
    }
    device = properties.location.id;
    return process.physical.memory_of(memory);
  });
}

CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle multicast, CUdevice device,
                               size_t multicast_offset, CUmemGenericAllocationHandle memory,
                               size_t memory_offset, size_t size, unsigned long long flags) {
  const auto call = [&] {
    return real::cuMulticastBindMem_v2(multicast, device, multicast_offset, memory, memory_offset,
                                       size, flags);
  };
  return bind(multicast, multicast_offset, size, call, [&](Process& process, CUdevice& on) {
    on = device;
    return process.physical.memory_of(memory);
  });
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle multicast, size_t multicast_offset,
                             CUdeviceptr pointer, size_t size, unsigned long long flags) {
  const auto call = [&] {
    return real::cuMulticastBindAddr(multicast, multicast_offset, pointer, size, flags);
  };
  return bind(multicast, multicast_offset, size, call, [&](Process& process, CUdevice& device) {
    Context context;
    if (!current_context(process, context)) return uint64_t{0};
    device = context.device;
    return process.physical.memory_at(pointer);
  });
}

CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle multicast, CUdevice device,
                                size_t multicast_offset, CUdeviceptr pointer, size_t size,
                                unsigned long long flags) {
  const auto call = [&] {
    return real::cuMulticastBindAddr_v2(multicast, device, multicast_offset, pointer, size, flags);
  };
  return bind(multicast, multicast_offset, size, call, [&](Process& process, CUdevice& on) {
    on = device;
    return process.physical.memory_at(pointer);
  });
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle multicast, CUdevice device,
                           size_t multicast_offset, size_t size) {
  Hook hook;
  if (!hook.active()) return real::cuMulticastUnbind(multicast, device, multicast_offset, size);
  Process& process = hook.process();
  const InFlightScope in_flight(process);
  const uint64_t object = process.physical.memory_of(multicast);
  const uint64_t serial = process.physical.serial();
  const CUresult result = real::cuMulticastUnbind(multicast, device, multicast_offset, size);
  if (result == kSuccess && object != 0) {
    process.physical.drop_mappings(
        PhysicalTable::binding_key(object, device, multicast_offset), size, serial,
        [&](const PhysicalTable::Freed& freed) { give_back(process, freed); });
  }
  return result;
}

}  // namespace fracgpu::cuda
