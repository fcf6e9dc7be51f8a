// /dev/kfd ioctls, by the rules of the kernel's kfd_chardev.c and amdgpu_amdkfd_gpuvm.c.
#include <sys/eventfd.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <vector>

#include "ioctl.h"
#include "newer_kfd_ioctl.h"
#include "svm.h"
#include "user_memory.h"

namespace kfd {
namespace {

// The version that introduced the newest ioctl below.
constexpr uint32_t kMajorVersion = 1, kMinorVersion = 17;

uint64_t handle_number(const Caller& caller, int handle) {
  const Buffer& buffer = caller.accounting.buffer[caller.accounting.handle[handle].buffer];
  return static_cast<uint64_t>(caller.accounting.card[buffer.card].gpu_id) << 32 |
         static_cast<uint32_t>(handle);
}

// For ioctls without an effect here.
template <typename Arguments>
long accept(Caller&, Arguments&) {
  return 0;
}

// The same for ioctls that name a card.
template <typename Arguments>
long accept_for_card(Caller& caller, Arguments& args) {
  return std::min(card_of(caller.accounting, args.gpu_id), 0l);
}

long get_version(Caller&, kfd_ioctl_get_version_args& args) {
  args = {kMajorVersion, kMinorVersion};
  return 0;
}

long get_clock_counters(Caller&, kfd_ioctl_get_clock_counters_args& args) {
  const auto nanoseconds = [](clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
  };
  args.gpu_clock_counter = gpu_clock();
  args.cpu_clock_counter = nanoseconds(CLOCK_MONOTONIC_RAW);
  args.system_clock_counter = nanoseconds(CLOCK_BOOTTIME);
  args.system_clock_freq = 1'000'000'000;
  return 0;
}

kfd_process_device_apertures apertures_of(const Card& card) {
  kfd_process_device_apertures made{};
  made.gpu_id = card.gpu_id;
  made.lds_base = 1ull << 48;
  made.lds_limit = made.lds_base | UINT32_MAX;
  made.scratch_base = 2ull << 48;
  made.scratch_limit = made.scratch_base | UINT32_MAX;
  made.gpuvm_base = 0x4000;
  made.gpuvm_limit = (1ull << 47) - 1;
  return made;
}

long get_process_apertures(Caller& caller, kfd_ioctl_get_process_apertures_args& args) {
  args.num_of_nodes = std::min<uint32_t>(caller.accounting.cards, NUM_OF_SUPPORTED_GPUS);
  for (uint32_t c = 0; c < args.num_of_nodes; ++c) {
    args.process_apertures[c] = apertures_of(caller.accounting.card[c]);
  }
  return 0;
}

long get_process_apertures_new(Caller& caller, kfd_ioctl_get_process_apertures_new_args& args) {
  // 0 only asks for the number of cards.
  if (args.num_of_nodes == 0) {
    args.num_of_nodes = caller.accounting.cards;
    return 0;
  }
  args.num_of_nodes = std::min(args.num_of_nodes, caller.accounting.cards);
  for (uint32_t c = 0; c < args.num_of_nodes; ++c) {
    const kfd_process_device_apertures made = apertures_of(caller.accounting.card[c]);
    if (!copy_to_user(args.kfd_process_device_apertures_ptr + c * sizeof made, &made,
                      sizeof made)) {
      return -EFAULT;
    }
  }
  return 0;
}

long acquire_vm(Caller& caller, kfd_ioctl_acquire_vm_args& args) {
  const DeviceFile file = device_file(static_cast<int>(args.drm_fd));
  const long card = card_of(caller.accounting, args.gpu_id);
  return card >= 0 && file.kind == DeviceFile::kRender && file.card == card ? 0 : -EINVAL;
}

// Memory.

uint64_t doorbell_page(const Caller& caller, uint32_t card) {
  return (1 + static_cast<uint64_t>(caller.process.number) * kMaxCards + card) * kDoorbellStep;
}

long alloc_memory(Caller& caller, kfd_ioctl_alloc_memory_of_gpu_args& args) {
  const long card = card_of(caller.accounting, args.gpu_id);
  if (card < 0 || args.size == 0) return -EINVAL;
  Domain domain = Domain::kNone;
  switch (args.flags & (KFD_IOC_ALLOC_MEM_FLAGS_VRAM | KFD_IOC_ALLOC_MEM_FLAGS_GTT |
                        KFD_IOC_ALLOC_MEM_FLAGS_USERPTR | KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL |
                        KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP)) {
    case KFD_IOC_ALLOC_MEM_FLAGS_VRAM:
      domain = Domain::kVram;
      break;
    case KFD_IOC_ALLOC_MEM_FLAGS_GTT:
      domain = Domain::kHost;
      break;
    case KFD_IOC_ALLOC_MEM_FLAGS_USERPTR:
    case KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL:
    case KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP:
      break;
    default:
      return -EINVAL;
  }
  // Such a ring is mapped twice, one after the other.
  const bool twice = (args.flags & KFD_IOC_ALLOC_MEM_FLAGS_AQL_QUEUE_MEM) != 0;
  const Lock lock(&caller.accounting);
  const int process = caller.process.place();
  if (process < 0) return process;
  const int buffer = add_buffer(caller.accounting, static_cast<uint32_t>(card),
                                twice ? args.size / 2 : args.size, args.flags, domain);
  if (buffer < 0) return buffer;
  const int handle = add_handle(caller.accounting, static_cast<uint32_t>(process),
                                static_cast<uint32_t>(buffer), true);
  if (handle < 0) return handle;
  args.handle = handle_number(caller, handle);
  args.mmap_offset = (args.flags & KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL) != 0
                         ? doorbell_page(caller, static_cast<uint32_t>(card))
                     : (args.flags & KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP) != 0
                         ? kMmioOffset
                         : caller.accounting.buffer[buffer].offset;
  return 0;
}

long free_memory(Caller& caller, kfd_ioctl_free_memory_of_gpu_args& args) {
  const Lock lock(&caller.accounting);
  const uint32_t handle = handle_of_caller(caller, args.handle, false);
  if (handle == 0) return -EINVAL;
  caller.process.release_handle(handle);
  return 0;
}

template <typename Arguments>  // map or unmap
long map_memory(Caller& caller, Arguments& args) {
  constexpr uint32_t kMostDevices = 512;
  if (args.n_devices == 0 || args.n_devices > kMostDevices || args.n_success > args.n_devices) {
    return -EINVAL;
  }
  std::vector<uint32_t> devices(args.n_devices);
  if (!copy_from_user(devices.data(), args.device_ids_array_ptr, devices.size() * 4)) {
    return -EFAULT;
  }
  const Lock lock(&caller.accounting);
  if (handle_of_caller(caller, args.handle, false) == 0) return -EINVAL;
  for (const uint32_t gpu_id : devices) {
    if (card_of(caller.accounting, gpu_id) < 0) return -EINVAL;
  }
  args.n_success = args.n_devices;
  return 0;
}

long available_memory(Caller& caller, kfd_ioctl_get_available_memory_args& args) {
  const long card = card_of(caller.accounting, args.gpu_id);
  if (card < 0) return card;
  const Lock lock(&caller.accounting);
  args.available = available(caller.accounting, static_cast<uint32_t>(card));
  return 0;
}

// Sharing between processes.

long export_dmabuf(Caller& caller, kfd_ioctl_export_dmabuf_args& args) {
  const Lock lock(&caller.accounting);
  const uint32_t handle = handle_of_caller(caller, args.handle, false);
  if (handle == 0) return -EINVAL;
  const int fd = caller.process.export_handle(handle);
  args.dmabuf_fd = static_cast<uint32_t>(fd);
  return std::min(fd, 0);
}

long get_dmabuf_info(Caller& caller, kfd_ioctl_get_dmabuf_info_args& args) {
  const Lock lock(&caller.accounting);
  const int found = buffer_of_descriptor(caller.accounting, static_cast<int>(args.dmabuf_fd));
  if (found < 0) return found;
  const Buffer& buffer = caller.accounting.buffer[found];
  if (args.metadata_ptr != 0 && !copy_to_user(args.metadata_ptr, buffer.metadata,
                                              std::min(args.metadata_size, buffer.metadata_size)))
    return -EFAULT;
  args.metadata_size = buffer.metadata_size;
  args.size = buffer.size;
  args.gpu_id = caller.accounting.card[buffer.card].gpu_id;
  args.flags =
      buffer.domain == Domain::kVram ? KFD_IOC_ALLOC_MEM_FLAGS_VRAM : KFD_IOC_ALLOC_MEM_FLAGS_GTT;
  return 0;
}

// An importer keeps the memory alive and is not charged for it. `fd`: the dma-buf that it comes
// from, or -1.
long import_buffer(Caller& caller, int buffer, int fd, __u64* number) {
  const int process = caller.process.place();
  if (process < 0) return process;
  const int handle = add_handle(caller.accounting, static_cast<uint32_t>(process),
                                static_cast<uint32_t>(buffer), false);
  if (handle < 0) return handle;
  if (fd >= 0) caller.process.hold_dma_buf(static_cast<uint32_t>(handle), fd);
  *number = handle_number(caller, handle);
  return 0;
}

long import_dmabuf(Caller& caller, kfd_ioctl_import_dmabuf_args& args) {
  const Lock lock(&caller.accounting);
  const int fd = static_cast<int>(args.dmabuf_fd);
  const int buffer = buffer_of_descriptor(caller.accounting, fd);
  return buffer < 0 ? buffer : import_buffer(caller, buffer, fd, &args.handle);
}

constexpr uint32_t kIpcMark = 0x4b464449;

long ipc_export(Caller& caller, kfd_ioctl_ipc_export_handle_args& args) {
  const Lock lock(&caller.accounting);
  const uint32_t handle = handle_of_caller(caller, args.handle, false);
  if (handle == 0) return -EINVAL;
  const uint32_t number = caller.accounting.handle[handle].buffer;
  Buffer& buffer = caller.accounting.buffer[number];
  buffer.shared = true;
  const uint32_t share[4] = {kIpcMark, number, buffer.serial, buffer.card};
  std::memcpy(args.share_handle, share, sizeof share);
  args.flags = buffer.flags;
  return 0;
}

long ipc_import(Caller& caller, kfd_ioctl_ipc_import_handle_args& args) {
  const Lock lock(&caller.accounting);
  const uint32_t number = args.share_handle[1];
  if (args.share_handle[0] != kIpcMark || number >= caller.accounting.buffers_end) return -EINVAL;
  const Buffer& buffer = caller.accounting.buffer[number];
  if (buffer.serial == 0 || buffer.serial != args.share_handle[2] || !buffer.shared) return -EINVAL;
  const long rc = import_buffer(caller, static_cast<int>(number), -1, &args.handle);
  args.mmap_offset = buffer.offset;
  args.flags = buffer.flags;
  return rc;
}

// Queues.

long create_queue(Caller& caller, kfd_ioctl_create_queue_args& args) {
  const long card = card_of(caller.accounting, args.gpu_id);
  if (card < 0 || args.queue_percentage > KFD_MAX_QUEUE_PERCENTAGE ||
      args.queue_priority > KFD_MAX_QUEUE_PRIORITY || (args.ring_size & (args.ring_size - 1)) != 0)
    return -EINVAL;
  switch (args.queue_type) {
    case KFD_IOC_QUEUE_TYPE_COMPUTE_AQL:
    case KFD_IOC_QUEUE_TYPE_SDMA:
    case KFD_IOC_QUEUE_TYPE_SDMA_XGMI:
    case KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID:
      break;
    default:
      report_unknown(caller.accounting, "a queue of type", args.queue_type, sizeof args);
      return -EINVAL;
  }
  if ((args.ring_size != 0 && !is_readable(args.ring_base_address, args.ring_size)) ||
      !is_readable(args.read_pointer_address, 8) || !is_readable(args.write_pointer_address, 8))
    return -EFAULT;
  {
    const Lock lock(&caller.accounting);
    if (const int process = caller.process.place(); process < 0) return process;
  }
  ThisProcess& process = caller.process;
  auto& doorbells = process.doorbells[static_cast<size_t>(card)];
  size_t doorbell = 0;
  while (doorbell < kDoorbells && doorbells[doorbell]) ++doorbell;
  if (doorbell == kDoorbells) return -ENOMEM;
  doorbells.set(doorbell);
  args.queue_id = process.next_queue++;
  args.doorbell_offset = doorbell_page(caller, static_cast<uint32_t>(card)) + doorbell * 8;
  process.queue_doorbell[args.queue_id] = {static_cast<uint32_t>(card), doorbell};
  Queue queue;
  queue.id = args.queue_id;
  queue.aql = args.queue_type == KFD_IOC_QUEUE_TYPE_COMPUTE_AQL;
  queue.ring = args.ring_base_address;
  queue.ring_bytes = args.ring_size;
  queue.read_pointer = args.read_pointer_address;
  queue.write_pointer = args.write_pointer_address;
  process.queues.add(queue);
  return 0;
}

long destroy_queue(Caller& caller, kfd_ioctl_destroy_queue_args& args) {
  ThisProcess& process = caller.process;
  const auto found = process.queue_doorbell.find(args.queue_id);
  if (found == process.queue_doorbell.end()) return -EINVAL;
  process.queues.remove(args.queue_id);
  process.doorbells[found->second.first].reset(found->second.second);
  process.queue_doorbell.erase(found);
  return 0;
}

long update_queue(Caller& caller, kfd_ioctl_update_queue_args& args) {
  if ((args.ring_size & (args.ring_size - 1)) != 0) return -EINVAL;
  if (args.ring_size != 0 && !is_readable(args.ring_base_address, args.ring_size)) return -EFAULT;
  return caller.process.queues.update(args.queue_id, args.ring_base_address, args.ring_size)
             ? 0
             : -EINVAL;
}

long get_queue_wave_state(Caller&, kfd_ioctl_get_queue_wave_state_args& args) {
  args.ctl_stack_used_size = args.save_area_used_size = 0;
  return 0;
}

long get_tile_config(Caller& caller, kfd_ioctl_get_tile_config_args& args) {
  if (card_of(caller.accounting, args.gpu_id) < 0) return -EINVAL;
  args.gb_addr_config = 0x2a114042;  // an MI200's
  args.num_tile_configs = args.num_macro_tile_configs = 0;
  args.num_banks = args.num_ranks = 0;
  return 0;
}

// Events.

long create_event(Caller& caller, kfd_ioctl_create_event_args& args) {
  constexpr uint64_t kEventPage =
      2ull << 62;  // KFD_MMAP_TYPE_EVENTS; without a page the runtime never uses events
  args.event_id =
      caller.process.events.create(args.auto_reset != 0, args.event_type == KFD_IOC_EVENT_SIGNAL);
  if (args.event_id == 0) return -ENOSPC;
  args.event_trigger_data = args.event_slot_index = args.event_id;
  args.event_page_offset = kEventPage;
  return 0;
}

long destroy_event(Caller& caller, kfd_ioctl_destroy_event_args& args) {
  return caller.process.events.destroy(args.event_id) ? 0 : -EINVAL;
}

long set_event(Caller& caller, kfd_ioctl_set_event_args& args) {
  return caller.process.events.set(args.event_id) ? 0 : -EINVAL;
}

long reset_event(Caller& caller, kfd_ioctl_reset_event_args& args) {
  return caller.process.events.reset(args.event_id) ? 0 : -EINVAL;
}

long wait_events(Caller& caller, kfd_ioctl_wait_events_args& args) {
  if (args.num_events > KFD_SIGNAL_EVENT_LIMIT) return -EINVAL;
  std::vector<kfd_event_data> data(args.num_events);
  if (!copy_from_user(data.data(), args.events_ptr, data.size() * sizeof data[0])) return -EFAULT;
  std::vector<Events::Wanted> wanted(data.size());
  for (size_t i = 0; i < data.size(); ++i) {
    wanted[i].event = data[i].event_id;
    // `last_event_age`, first in the union. Linux 6.1's header lacks it.
    std::memcpy(&wanted[i].last_age, &data[i], sizeof wanted[i].last_age);
  }
  const long result =
      caller.process.events.wait(wanted, args.wait_for_all != 0, args.timeout, &args.wait_result);
  if (result != 0 || args.wait_result != KFD_IOC_WAIT_RESULT_COMPLETE) return result;
  for (size_t i = 0; i < data.size(); ++i) {
    if (wanted[i].last_age == 0) continue;
    std::memcpy(&data[i], &wanted[i].last_age, sizeof wanted[i].last_age);
  }
  return copy_to_user(args.events_ptr, data.data(), data.size() * sizeof data[0]) ? 0 : -EFAULT;
}

long smi_events(Caller& caller, kfd_ioctl_smi_events_args& args) {
  if (card_of(caller.accounting, args.gpuid) < 0) return -EINVAL;
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);  // no event ever comes
  args.anon_fd = static_cast<uint32_t>(fd);
  return fd < 0 ? -errno : 0;
}

long set_xnack_mode(Caller& caller, kfd_ioctl_set_xnack_mode_args& args) {
  if (args.xnack_enabled >= 0) caller.process.xnack = args.xnack_enabled != 0;
  args.xnack_enabled = caller.process.xnack;
  return 0;
}

long runtime_enable(Caller&, kfd_ioctl_runtime_enable_args& args) {
  args.capabilities_mask = 0;
  return 0;
}

// As a kernel without this ioctl.
long refuse_debugger(Caller&, kfd_ioctl_dbg_trap_args&) {
  return -ENOTTY;
}

constexpr Ioctl kWaitEvents = [] {
  Ioctl wait = IOCTL(AMDKFD_IOC_WAIT_EVENTS, wait_events);
  wait.waits = true;
  return wait;
}();

constexpr Ioctl kTable[] = {
    IOCTL(AMDKFD_IOC_GET_VERSION, get_version),
    IOCTL(AMDKFD_IOC_CREATE_QUEUE, create_queue),
    IOCTL(AMDKFD_IOC_DESTROY_QUEUE, destroy_queue),
    IOCTL(AMDKFD_IOC_SET_MEMORY_POLICY, accept_for_card<kfd_ioctl_set_memory_policy_args>),
    IOCTL(AMDKFD_IOC_GET_CLOCK_COUNTERS, get_clock_counters),
    IOCTL(AMDKFD_IOC_GET_PROCESS_APERTURES, get_process_apertures),
    IOCTL(AMDKFD_IOC_UPDATE_QUEUE, update_queue),
    IOCTL(AMDKFD_IOC_CREATE_EVENT, create_event),
    IOCTL(AMDKFD_IOC_DESTROY_EVENT, destroy_event),
    IOCTL(AMDKFD_IOC_SET_EVENT, set_event),
    IOCTL(AMDKFD_IOC_RESET_EVENT, reset_event),
    kWaitEvents,
    NOT_SIMULATED(AMDKFD_IOC_DBG_REGISTER_DEPRECATED),
    NOT_SIMULATED(AMDKFD_IOC_DBG_UNREGISTER_DEPRECATED),
    NOT_SIMULATED(AMDKFD_IOC_DBG_ADDRESS_WATCH_DEPRECATED),
    NOT_SIMULATED(AMDKFD_IOC_DBG_WAVE_CONTROL_DEPRECATED),
    IOCTL(AMDKFD_IOC_SET_SCRATCH_BACKING_VA,
          accept_for_card<kfd_ioctl_set_scratch_backing_va_args>),
    IOCTL(AMDKFD_IOC_GET_TILE_CONFIG, get_tile_config),
    IOCTL(AMDKFD_IOC_SET_TRAP_HANDLER, accept_for_card<kfd_ioctl_set_trap_handler_args>),
    IOCTL(AMDKFD_IOC_GET_PROCESS_APERTURES_NEW, get_process_apertures_new),
    IOCTL(AMDKFD_IOC_ACQUIRE_VM, acquire_vm),
    IOCTL(AMDKFD_IOC_ALLOC_MEMORY_OF_GPU, alloc_memory),
    IOCTL(AMDKFD_IOC_FREE_MEMORY_OF_GPU, free_memory),
    IOCTL(AMDKFD_IOC_MAP_MEMORY_TO_GPU, map_memory<kfd_ioctl_map_memory_to_gpu_args>),
    IOCTL(AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU, map_memory<kfd_ioctl_unmap_memory_from_gpu_args>),
    IOCTL(AMDKFD_IOC_SET_CU_MASK, accept<kfd_ioctl_set_cu_mask_args>),
    IOCTL(AMDKFD_IOC_GET_QUEUE_WAVE_STATE, get_queue_wave_state),
    IOCTL(AMDKFD_IOC_GET_DMABUF_INFO, get_dmabuf_info),
    IOCTL(AMDKFD_IOC_IMPORT_DMABUF, import_dmabuf),
    IOCTL(AMDKFD_IOC_ALLOC_QUEUE_GWS, accept<kfd_ioctl_alloc_queue_gws_args>),
    IOCTL(AMDKFD_IOC_SMI_EVENTS, smi_events),
    IOCTL(AMDKFD_IOC_SVM, svm),
    IOCTL(AMDKFD_IOC_SET_XNACK_MODE, set_xnack_mode),
    NOT_SIMULATED(AMDKFD_IOC_CRIU_OP),
    IOCTL(AMDKFD_IOC_AVAILABLE_MEMORY, available_memory),
    IOCTL(AMDKFD_IOC_EXPORT_DMABUF, export_dmabuf),
    IOCTL(AMDKFD_IOC_RUNTIME_ENABLE, runtime_enable),
    IOCTL(AMDKFD_IOC_IPC_IMPORT_HANDLE, ipc_import),
    IOCTL(AMDKFD_IOC_IPC_EXPORT_HANDLE, ipc_export),
    IOCTL(AMDKFD_IOC_DBG_TRAP_OF_AMD, refuse_debugger),
};

}  // namespace

long kfd_ioctl(Caller& caller, unsigned long request, void* arguments) {
  if (_IOC_TYPE(request) != AMDKFD_IOCTL_BASE) return -ENOTTY;
  return call_ioctl(kTable, "an ioctl of /dev/kfd", caller, request, arguments);
}

}  // namespace kfd
