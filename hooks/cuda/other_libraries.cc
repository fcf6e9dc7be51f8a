// Stands between NVIDIA's libraries and the C library's ioctl; see other_libraries.h.
//
// The libraries hold their own locks during these calls. So this code takes no lock under which
// this library calls a driver, except when a device is first seen.
#include "hooks/cuda/other_libraries.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "hooks/cuda/kernel.h"
#include "hooks/cuda/rm.h"
#include "hooks/usage/nvml_usage.h"
#include "shim/base/held_objects.h"
#include "shim/base/import_slot.h"
#include "shim/base/text.h"
#include "shim/charge/driver_memory.h"
#include "shim/charge/in_flight.h"
#include "shim/process/process.h"

namespace fracgpu::cuda {
namespace {

class OtherRequests : public RmRequests {
 public:
  constexpr OtherRequests() : RmRequests("NVIDIA driver allocation") {}

  Payer payer_of(Process* process, uint64_t parent) override {
    return {process != nullptr ? device_of(*process, parent) : Process::kNotCapped};
  }

  // The thread that frees the parent of the former object may not have come to it yet.
  void given_out(Process& process, uint64_t key) override {
    const DriverBuffers::Entry former = process.rm_memory.take(key);
    if (former.key != 0) give_back_rm_memory(process, former);
  }

  // Only pools give memory back unseen. Without them a reading would find nothing, and OpenGL,
  // which goes on in host memory, is refused often.
  bool may_read_usage(const Process& process) const override { return !process.pools.empty(); }

  // The ledger's index for one of RM's device or subdevice objects; kFault if it is not known.
  static int device_of(const Process& process, uint64_t object) {
    const DriverBuffers::Entry known = process.rm_devices.find(object);
    return known.key != 0 ? known.device_index : Process::kFault;
  }
};
constinit OtherRequests other_requests;

// One of RM's controls of the client. False if RM refuses it.
template <typename Parameters>
bool ask_client(int fd, uint32_t client, Parameters& parameters) {
  rm::Control control{.client = client,
                      .object = client,
                      .command = Parameters::kCommand,
                      .flags = 0,
                      .parameters = reinterpret_cast<uint64_t>(&parameters),
                      .parameters_size = sizeof parameters,
                      .status = 0};
  constexpr unsigned long kRequest = rm::request_of(rm::kControl, sizeof control);
  return other_requests.ask(fd, kRequest, &control) == 0 && control.status == 0;
}

// "GPU-" and the UUID of the GPU with this number among RM's devices; empty if RM does not report
// it.
Text<64> key_of_device(int fd, uint32_t client, uint32_t number) {
  rm::AttachedGpus gpus{};
  if (!ask_client(fd, client, gpus)) return {};
  for (const uint32_t id : gpus.ids) {
    rm::GpuInfo info{};
    info.id = id;
    if (id == rm::AttachedGpus::kNone || !ask_client(fd, client, info)) continue;
    if (info.device_instance != number) continue;
    rm::GpuUuid uuid{};
    uuid.id = id;
    if (!ask_client(fd, client, uuid)) return {};
    return Text<64>(std::string_view(uuid.text, strnlen(uuid.text, sizeof uuid.text)));
  }
  return {};
}

// The ledger's index of the GPU with this number.
int index_of_device(Process& process, int fd, uint32_t client, uint32_t number) {
  if (number >= Process::kSlotsOfVendor) return Process::kFault;
  const int slot = Process::kRmSlots + static_cast<int>(number);
  if (const int known = process.cached_device_index(slot); known != Process::kUnknownDevice)
    return known;
  const Text<64> key = key_of_device(fd, client, number);
  return process.index_of_device(slot, key.c_str(), 0);
}

// Gives back the charges of memory that RM has freed with its parent.
template <typename Condition>
void give_back_if(Process& process, Condition is_gone) {
  std::array<DriverBuffers::Entry, 32> gone;  // each look-up scans all entries
  for (size_t count = gone.size(); count == gone.size();) {
    count = process.rm_memory.take_if(is_gone, gone);
    for (size_t i = 0; i < count; ++i) give_back_rm_memory(process, gone[i]);
  }
}

int allocate(int fd, unsigned long request, rm::Allocate& wanted) {
  const size_t size = rm::size_of(request), status = rm::status_offset(size);
  if (status == 0) return other_requests.ask(fd, request, &wanted);
  const bool is_serialized = size == sizeof wanted && (wanted.flags & rm::kIsSerialized) != 0;
  const bool is_device = wanted.object_class == rm::kDevice && !is_serialized;
  if (!is_device && wanted.object_class != rm::kSubdevice)
    return other_requests.watch(fd, request, &wanted);
  const int result = other_requests.ask(fd, request, &wanted);
  uint32_t error = 0;
  memcpy(&error, reinterpret_cast<const char*>(&wanted) + status, sizeof error);
  if (result != 0 || error != 0) return result;
  Process* const process = Process::self();
  if (process == nullptr) return result;
  // NV0080_ALLOC_PARAMETERS begins with the device's number. Without them RM takes its first
  // device.
  const auto* const number = reinterpret_cast<const uint32_t*>(wanted.parameters);
  const int device_index =
      is_device ? index_of_device(*process, fd, wanted.client, number != nullptr ? *number : 0)
                : OtherRequests::device_of(*process, rm::key_of(wanted.client, wanted.parent));
  const DriverBuffers::Entry former =
      process->rm_devices.enter({.key = rm::key_of(wanted.client, wanted.object),
                                 .device_index = device_index,
                                 .parent = wanted.parent});
  // It ended with its parent. The thread that frees that finds its memory no more.
  if (former.key != 0) {
    give_back_if(*process, [&](const DriverBuffers::Entry& each) {
      return rm::client_of(each.key) == wanted.client && each.parent == wanted.object;
    });
  }
  return result;
}

// RM frees all that belongs to a device or a client together with it. `unwanted`: a rm::Free, or a
// rm::HeapControl, which can free any object too.
template <typename Unwanted>
int free_object(int fd, unsigned long request, Unwanted& unwanted) {
  Process* const process = Process::known();
  const uint64_t key = rm::key_of(unwanted.client, unwanted.object);
  const bool is_client = unwanted.object == unwanted.client;
  const bool has_children =
      process != nullptr && (is_client || process->rm_devices.find(key).key != 0);
  if (!has_children) return other_requests.watch(fd, request, &unwanted);
  // RM may give the handles to another thread at once, so only entries older than this call go.
  const uint64_t memory_before = process->rm_memory.next_number();
  const uint64_t devices_before = process->rm_devices.next_number();
  const InFlightScope in_flight(*process);
  const int result = other_requests.watch(fd, request, &unwanted);
  if (result != 0 || unwanted.status != 0) return result;
  const auto is_child = [&](const DriverBuffers::Entry& each, uint64_t before, uint32_t parent) {
    return each.number < before && rm::client_of(each.key) == unwanted.client &&
           (is_client || each.parent == parent);
  };
  const auto give_back_of = [&](uint32_t parent) {
    give_back_if(*process, [&](const DriverBuffers::Entry& each) {
      return is_child(each, memory_before, parent);
    });
  };
  // A device's subdevices go with it, and their memory.
  for (;;) {
    const DriverBuffers::Entry gone =
        process->rm_devices.take_if([&](const DriverBuffers::Entry& each) {
          const bool is_itself = each.key == key && each.number < devices_before;
          return is_itself || is_child(each, devices_before, unwanted.object);
        });
    if (gone.key == 0) break;
    give_back_of(static_cast<uint32_t>(gone.key));
  }
  give_back_of(unwanted.object);
  return result;
}

uint64_t cap_bytes(const Process& process, int device_index) {
  return process.ledger.cap(device_index) * layout::kUnit;
}

// Lowers the sizes in RM's answer to the cap, and free memory to the rest of the cap.
void show_cap(Process& process, int device_index, rm::FbEntry* entries, uint32_t count) {
  const uint64_t cap = cap_bytes(process, device_index), size = cap >> 10;
  const uint64_t left = (cap - std::min(cap, process.tenant_held(device_index))) >> 10;
  for (uint32_t i = 0; i < count; ++i) {
    rm::FbEntry& entry = entries[i];
    const uint64_t most = rm::is_size(entry.index)   ? size
                          : rm::is_free(entry.index) ? left
                                                     : entry.kib;
    entry.kib = static_cast<uint32_t>(std::min<uint64_t>(entry.kib, most));
  }
}

int control(int fd, unsigned long request, rm::Control& asked) {
  const int result = other_requests.watch(fd, request, &asked);
  if (rm::is<rm::ExportToFd>(asked) && result == 0 && asked.status == 0) {
    if (Process* const process = Process::known(); process != nullptr) {
      const auto& exported = *reinterpret_cast<const rm::ExportToFd*>(asked.parameters);
      note_exported_buffer(*process, process->rm_memory,
                           rm::key_of(asked.client, exported.exported.object), exported.fd,
                           OpenExports::Of::driver_memory);
    }
    return result;
  }
  const bool reports_sizes = (asked.command == rm::kFbInfo || asked.command == rm::kFbInfo2) &&
                             (asked.flags & rm::kControlIsSerialized) == 0;
  Process* const process = Process::known();
  if (!reports_sizes || result != 0 || asked.status != 0 || asked.parameters == 0 ||
      process == nullptr) {
    return result;
  }
  const int device_index =
      OtherRequests::device_of(*process, rm::key_of(asked.client, asked.object));
  if (device_index < 0) return result;
  if (asked.command == rm::kFbInfo && asked.parameters_size >= sizeof(rm::FbInfo)) {
    const auto& list = *reinterpret_cast<const rm::FbInfo*>(asked.parameters);
    if (list.entries != 0)
      show_cap(*process, device_index, reinterpret_cast<rm::FbEntry*>(list.entries), list.count);
  } else if (asked.command == rm::kFbInfo2 && asked.parameters_size >= sizeof(rm::FbInfo2)) {
    auto& list = *reinterpret_cast<rm::FbInfo2*>(asked.parameters);
    const size_t room = (asked.parameters_size - sizeof list) / sizeof list.entries[0];
    show_cap(*process, device_index, list.entries,
             static_cast<uint32_t>(std::min<size_t>(list.count, room)));
  }
  return result;
}

// The answer is the last address of the device's memory.
int ask_size(int fd, unsigned long request, rm::AllocateMemory& asked) {
  const int result = other_requests.ask(fd, request, &asked);
  const Process* const process = Process::known();
  if (process == nullptr || result != 0 || asked.status != 0 ||
      asked.object_class != rm::kDeviceMemory) {
    return result;
  }
  const int device_index =
      OtherRequests::device_of(*process, rm::key_of(asked.client, asked.parent));
  if (device_index >= 0)
    asked.limit =
        std::min(asked.limit, std::max<uint64_t>(cap_bytes(*process, device_index), 1) - 1);
  return result;
}

int watched_ioctl(int fd, unsigned long request, void* argument) {
  if (!rm::is_rms(request) || argument == nullptr) return other_requests.ask(fd, request, argument);
  const size_t size = rm::size_of(request);
  switch (request & 0xff) {
    case rm::kAllocate:
      return allocate(fd, request, *static_cast<rm::Allocate*>(argument));
    case rm::kFree:
      if (size != sizeof(rm::Free)) break;
      return free_object(fd, request, *static_cast<rm::Free*>(argument));
    case rm::kHeapControl: {
      auto& wanted = *static_cast<rm::HeapControl*>(argument);
      if (size < sizeof wanted || wanted.function != rm::kFreeMemory) break;
      return free_object(fd, request, wanted);
    }
    case rm::kControl:
      if (size != sizeof(rm::Control)) break;
      return control(fd, request, *static_cast<rm::Control*>(argument));
    case rm::kAllocateMemory:
      if (size < sizeof(rm::AllocateMemory)) break;
      return ask_size(fd, request, *static_cast<rm::AllocateMemory*>(argument));
    default:
      break;
  }
  return other_requests.watch(fd, request, argument);
}

}  // namespace

bool may_be_other_library(std::string_view file) {
  const std::string_view name = elf::file_name(file);
  const bool is_nvml = name.starts_with("libnvidia-ml.");  // it takes no memory
  return name.find("nvidia") != name.npos && !is_nvml;
}

void watch_other_libraries() {
  static constinit std::atomic<bool> has_warned{false};
  auto* const ioctl = reinterpret_cast<void*>(&watched_ioctl);
  bool any = false;
  elf::visit_held_objects(
      [](const elf::Loaded& object) { return may_be_other_library(object.soname); },
      [&](const elf::Loaded& object) {
        any |= elf::watch_requests(object, ioctl, other_requests.next_ioctl, has_warned);
      });
  // Here rather than at the first device, which is made under a driver's locks. NVML looks names up
  // itself, which leads here again.
  static constinit std::atomic<bool> has_started{false};
  if (any && !has_started.exchange(true)) nvml::start();
}

}  // namespace fracgpu::cuda
